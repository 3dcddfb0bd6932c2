"""Tensors of Core ML models."""
