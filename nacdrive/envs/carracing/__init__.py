"""Gymnasium's CarRacing-v3, drawn only when looked at, with a fast approximate renderer."""
