"""What is driven: CarRacing with its fast renderer, the built-in tracks, the Udacity simulator, a user's own."""
