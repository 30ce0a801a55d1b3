"""ONNX conversions: how well frameworks write and read ONNX."""
