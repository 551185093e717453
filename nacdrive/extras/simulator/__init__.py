"""The built-in track in place of the Udacity simulator, and a look at random roads."""
