"""Open documents: extractions, sessions, and which parser fits."""
