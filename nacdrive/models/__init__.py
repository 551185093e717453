"""Steering policies: a vision front end, one sequence layer, a head; driven step by step, kept as files."""

from nacdrive.models.config import PolicyConfig
from nacdrive.models.files import convert_model, load_policy, save_policy
from nacdrive.models.policy import Policy

__all__ = ["Policy", "PolicyConfig", "convert_model", "load_policy", "save_policy"]
