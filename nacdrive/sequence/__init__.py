"""Every sequence layer behind one contract (``contract.py``) and one registry (``registry.py``)."""

from nacdrive.sequence.contract import SequenceLayer
from nacdrive.sequence.registry import BASELINES, build, names

__all__ = ["BASELINES", "SequenceLayer", "build", "names"]
