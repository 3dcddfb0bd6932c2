"""Formats that hold files: archives and compressed streams, and how their content is read."""
