"""``nacdrive bench robustness``: trained layers tested with steps dropped, clocks changed and times hidden."""
