"""Graphs of models: what a format says of one, the index of who consumes whom, and parts of it as text and files."""
