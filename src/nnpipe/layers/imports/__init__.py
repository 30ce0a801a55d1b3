"""Reading the networks of others: ONNX files and PyTorch modules, as graphs of layers."""
