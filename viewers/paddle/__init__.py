"""Tensors and graphs of PaddlePaddle programs."""
