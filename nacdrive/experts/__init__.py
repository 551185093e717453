"""Who teaches: PPO training and loading, a geometric controller."""
