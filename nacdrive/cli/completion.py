"""``nacdrive --print-completion bash|zsh``: what a shell needs to complete verbs and options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SCRIPT = """\
_nacdrive() {{
  local words="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" current="${{COMP_WORDS[COMP_CWORD]}}" known=""
  case "$words" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$known" -- "$current"))
  [[ "$current" == -* || ${{#COMPREPLY[@]}} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -F _nacdrive nacdrive
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str, verbs: Iterable[tuple[str, Any]], names: Iterable[str]) -> str:
    """The script for ``shell``, from (verb or verb and sub-verb, config class) and the names of all verbs."""
    from nacdrive.cli.words import options

    cases = [f'    "") known="{" ".join(names)}" ;;']
    first: dict[str, list[str]] = {}
    for verb, config_class in verbs:
        cases.append(f'    "{verb}"|"{verb} "*) known="{" ".join(sorted(set(options(config_class))))}" ;;')
        if " " in verb:
            first.setdefault(verb.split()[0], []).append(verb.split()[1])
    cases += [f'    "{verb}") known="{" ".join(subs)}" ;;' for verb, subs in first.items()]
    return (ZSH if shell == "zsh" else "") + SCRIPT.format(cases="\n".join(cases))
