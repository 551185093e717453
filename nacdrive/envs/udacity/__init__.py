"""The Udacity simulator, which connects to us."""

from nacdrive.envs.udacity.env import DriveInterruptedError, UdacityEnv

__all__ = ["DriveInterruptedError", "UdacityEnv"]
