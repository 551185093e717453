"""Every sequence layer behind one contract (``contract.py``) and one registry (``registry.py``)."""

from nacdrive.sequence.contract import SequenceLayer
from nacdrive.sequence.registry import build, names

__all__ = ["SequenceLayer", "build", "names"]
