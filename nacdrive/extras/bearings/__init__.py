"""Bearings: vibration recordings in their published formats, features and labels of them, and their remaining life."""
