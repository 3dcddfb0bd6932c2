"""Pickles, protocols 0 to 5: read by a machine of our own, which runs nothing, imports nothing and calls nothing."""
