"""Compare sequence layers: a grid of tasks, models and folds, its tables, and the runtime of each layer."""
