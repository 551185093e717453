"""Recordings in the formats of others, LeRobot's and Minari's, and back. The simulator's logs are one folder up."""
