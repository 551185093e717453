"""``nacdrive eval --data``: from recorded drives a guess whether a policy will drive there."""
