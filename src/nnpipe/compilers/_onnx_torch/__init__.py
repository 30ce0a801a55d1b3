"""Operators of ONNX as functions of PyTorch."""
