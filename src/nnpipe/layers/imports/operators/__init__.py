"""The operators of ONNX, each as layers."""
