"""Streamed output: nothing is held that need not be."""
