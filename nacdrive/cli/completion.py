"""``nacdrive --print-completion bash|zsh``: what a shell needs to complete verbs and options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_suffix(".sh")
"""Has ``{cases}`` where the words belong that may come next."""
EVERY = {"-q", "--quiet", "--json", "--trust", "-h", "--help"}
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str, verbs: Iterable[tuple[str, Any]], names: Iterable[str]) -> str:
    """The script for ``shell``, from (verb or verb and sub-verb, config class) and the names of all verbs."""
    from nacdrive.cli.words import FORMER, SYNONYMS, options, plain_type
    from nacdrive.common.options import choices_of

    cases = [f'    ""|"help") known="{" ".join(names)}" ;;']
    first: dict[str, list[str]] = {}
    for verb, config_class in verbs:
        known = options(config_class)
        for name, kind in known.items():
            if choices := " ".join(map(str, filter(None, choices_of(plain_type(kind))))):
                cases.append(f'    "{verb} "*"{name}"|"{verb} {name}") known="{choices}" ;;')
        words = EVERY.union(known, (one for one, own in SYNONYMS.items() if own in known and one not in FORMER))
        cases.append(f'    "{verb}"|"{verb} "*) known="{" ".join(sorted(words))}" ;;')
        if " " in verb:
            first.setdefault(verb.split()[0], []).append(verb.split()[1])
    cases += [f'    "{verb}") known="{" ".join(subs)}" ;;' for verb, subs in first.items()]
    return (ZSH if shell == "zsh" else "") + SCRIPT.read_text(encoding="utf-8").replace("{cases}", "\n".join(cases))
