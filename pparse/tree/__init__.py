"""Nodes, parsers, and the engine that runs them."""
