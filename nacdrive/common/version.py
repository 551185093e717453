"""The version of nacdrive; below all that names it in a file, a title or a message."""

__version__ = "0.1.0"
