"""Features that nothing else needs, one folder each; whatever is outside them and the command line imports none."""
