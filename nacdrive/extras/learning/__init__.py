"""A card of the page: how far a training is, its curve, and the laps that were recorded for it."""
