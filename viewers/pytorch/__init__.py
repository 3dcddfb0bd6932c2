"""Tensors of PyTorch checkpoints."""
