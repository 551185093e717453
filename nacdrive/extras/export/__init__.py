"""Policies for machines without torch: ONNX files, C sources, web pages."""
