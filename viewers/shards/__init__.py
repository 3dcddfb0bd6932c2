"""Tensors of models in several files."""
