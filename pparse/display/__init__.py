"""Text and tables for people: what a name may look like on a terminal, and tables for notebooks."""
