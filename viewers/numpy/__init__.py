"""The arrays in numpy's files."""
