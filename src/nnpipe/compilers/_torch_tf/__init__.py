"""PyTorch's operators in TensorFlow, for the conversion of exported programs to TensorFlow Lite."""
