"""The command line: one short file per verb; nothing is computed here."""
