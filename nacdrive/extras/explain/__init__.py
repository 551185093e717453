"""``nacdrive explain``: which part decides how often, figures of a policy's gradients, neurons and wiring."""
