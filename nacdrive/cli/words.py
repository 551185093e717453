"""Other words for options: the one table of synonyms, and of spellings that were usual once."""

from __future__ import annotations

SYNONYMS = {"--sim": "--env", "--port": "--page-port", "--driver": "--drivers"}
"""Words that mean another option, in every verb that has the second and not the first."""


def rewrite(line: list[str], known: set[str]) -> list[str]:
    """A command line in the words of a verb whose options are ``known``."""
    return [rewrite_word(word, known) for word in line]


def rewrite_word(word: str, known: set[str]) -> str:
    """One word of a command line; values, and options that the verb has, stay as they are."""
    name, equals, value = word.partition("=")
    other = SYNONYMS.get(name)
    return f"{other}{equals}{value}" if other in known and name not in known else word
