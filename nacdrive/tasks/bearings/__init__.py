"""Remaining life of bearings: the task, runs to failure, wear and its prior, and the PHM-2012 challenge."""
