"""What every room may use: errors for people, atomic files, seeds, the record of a run."""
