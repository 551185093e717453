"""Why a policy decides so: Grad-CAM, neuron states, wiring pictures. Arrays in, figures out."""

from nacdrive.viz.saliency import GradCam
from nacdrive.viz.trace import Trace, retrace

__all__ = ["GradCam", "Trace", "retrace"]
