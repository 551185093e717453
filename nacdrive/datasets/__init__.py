"""What was seen and done: recordings (read, write, check, merge), downloads with checksums, features."""
