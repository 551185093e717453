"""Every sequence layer behind one contract (``contract.py``) and one registry (``registry.py``)."""

from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.registry import BASELINES, build, check_name, names, register

__all__ = ["BASELINES", "SequenceLayer", "build", "check_name", "names", "register"]
