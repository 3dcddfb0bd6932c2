"""Nodes, parsers, and the engine that runs these."""
