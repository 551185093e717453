"""Several policies, experts, a person on one track, side by side on a page with a lane for each."""
