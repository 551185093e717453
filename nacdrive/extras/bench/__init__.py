"""Sequence layers compared: models x tasks x folds x seeds, their tables, reports, robustness and runtime."""
