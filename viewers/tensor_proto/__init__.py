"""Tensors that messages describe: what TensorFlow's and ONNX's TensorProto have in common."""
