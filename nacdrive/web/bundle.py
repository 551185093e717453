"""ES modules as one script: what a page needs comes in one answer, and a page of one file needs no other."""

from __future__ import annotations

import re
from pathlib import Path

from nacdrive.common.paths import shipped

IMPORT = re.compile(r'^import \{ ([^}]*) \} from "(/js/|[./\w]*/)([\w.]+)";\n', re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:.|\n)*?\*/[ \t]*)\n", re.MULTILINE)


def bundle(entry: Path, seen: set[Path] | None = None, base: str = "") -> str:
    """A module behind all that it imports, of any page, without comments; its exports are those of them all.

    Modules of ``seen``, to which these are added, are left out, and imported from the script at the address ``base``.
    No two of a script may give the same name to something of their own, and none may rename what it imports.
    """
    seen = set() if seen is None else seen
    there = frozenset(seen)
    taken: set[str] = set()

    def text(module: Path) -> str:
        if module in seen:
            return ""
        seen.add(module)
        own, needed = module.read_text(encoding="utf-8"), []
        for names, folder, name in IMPORT.findall(own):
            path = ((shipped("www") / "js" if folder == "/js/" else module.parent / folder) / name).resolve()
            taken.update(names.split(", ") if path in there else ())
            needed.append(text(path))
        return "".join(needed) + COMMENT.sub("", IMPORT.sub("", own))

    script = text(entry.resolve())
    return f'import {{ {", ".join(sorted(taken))} }} from "{base}";\n{script}' if taken else script
