"""ONNX models."""
