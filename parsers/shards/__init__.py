"""Models in several files: by an index, by a folder, or by names with numbers. Formats derive from these."""
