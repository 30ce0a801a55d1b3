"""Translation of ONNX operators into layers."""
