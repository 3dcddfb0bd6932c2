"""Viewers of models that are FlatBuffers; begin with `viewer`, which has what they share."""
