"""Recordings in the formats of others, LeRobot's and Minari's, and back, and their cards."""
