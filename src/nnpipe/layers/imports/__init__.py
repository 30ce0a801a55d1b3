"""Import of ONNX files and PyTorch modules as graphs of layers."""
