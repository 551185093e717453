"""Reinforcement learning: how experts are trained."""
