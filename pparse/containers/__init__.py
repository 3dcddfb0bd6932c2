"""Archives and streams, and what is read of what they hold."""
