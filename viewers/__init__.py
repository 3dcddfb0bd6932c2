"""Viewers: the tensors of a model by name, as numpy arrays."""
