"""Arrays in pickles."""
