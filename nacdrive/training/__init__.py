"""Fit a network to sequences: split, batches, schedule, early stopping, checkpoints that resume exactly."""
