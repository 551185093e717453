"""Why a policy decides so: Grad-CAM, neuron states, wiring pictures. Arrays in, figures out."""

from nacdrive.explain.saliency import GradCam
from nacdrive.explain.trace import Trace, retrace

__all__ = ["GradCam", "Trace", "retrace"]
