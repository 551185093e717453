"""Policies that drive without torch: as ONNX, as C, as one page of HTML."""
