"""ONNX models: one protobuf message, which `pparse.parsers.protobuf` reads; `pparse.parsers.onnx.parser` tells them."""
