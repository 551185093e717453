"""Miles per hour, the one unit that is not nacdrive's own: speeds are metres per second everywhere else."""

MPH_PER_MPS = 2.23693629
"""As the Udacity simulator multiplies what its speedometer and its logs show."""
MPS_PER_MPH = 1 / MPH_PER_MPS
