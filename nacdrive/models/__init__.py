"""Steering policies: a vision front end, one sequence layer, a head; driven step by step, kept as ``.pt`` files."""

from nacdrive.models.config import PolicyConfig
from nacdrive.models.files import load_policy, save_policy
from nacdrive.models.policy import Policy

__all__ = ["Policy", "PolicyConfig", "load_policy", "save_policy"]
