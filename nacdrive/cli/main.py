"""``nacdrive VERB ...``: find the verb's file, let tyro parse its config, print one sentence for a user's mistake."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from nacdrive import __version__
from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.paths import PACKAGE

# Verb -> what it does. The verb's file is imported only when it is called, so that --help answers at once.
VERBS = {
    "demo": "record, train, drive and watch on CarRacing: the whole job in one command",
    "record": "let an expert drive and keep its episodes",
    "train": "train a policy on recordings",
    "drive": "drive with a policy and watch it in a browser",
    "eval": "drive many unseen seeds: metrics, report, videos",
    "replay": "watch recorded episodes again, beside a policy or another run",
    "explain": "saliency, neurons, wiring: figures of what a policy looks at and why it steers",
    "data": "list, fetch, check: the public data sets beside driving",
    "recordings": "info, check, merge: look after recorded episodes",
    "sim": "udacity: the built-in track as a stand-in for the Udacity simulator",
    "expert": "train, eval, export: the PPO expert",
    "bench": "table, runtime: every sequence layer on the paper's tasks, and what each costs",
    "predict": "remaining life of bearings from their vibration",
    "classify": "digits in pictures, activities in recordings of worn tags",
    "doctor": "what works on this machine, and how to mend what does not",
}


def usage() -> str:
    """The text of ``nacdrive --help``."""
    rows = "\n".join(f"  {verb:<12} {text}" for verb, text in VERBS.items())
    return (
        f"nacdrive {__version__}: small continuous-time attention networks that drive\n\n"
        f"usage: nacdrive VERB [options]\n\n{rows}\n\n"
        "nacdrive VERB --help lists the options of a verb.\n"
    )


def dispatch(arguments: list[str]) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"nacdrive {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    module = import_module(f"nacdrive.cli.{verb}")
    config_class, run, program = module_entry(module, verb, rest)
    if rest and hasattr(module, "VERBS"):
        rest = rest[1:]
    import tyro

    return run(tyro.cli(config_class, prog=program, args=rest)) or 0


def module_entry(module: Any, verb: str, rest: list[str]) -> tuple[type, Callable[[Any], int | None], str]:
    """Config class, function and program name of a verb, or of the sub-verb that ``rest`` begins with."""
    sub_verbs: dict[str, tuple[type, Callable[[Any], int | None]]] | None = getattr(module, "VERBS", None)
    if sub_verbs is None:
        return module.CONFIG, module.run, f"nacdrive {verb}"
    if not rest or rest[0] in ("-h", "--help"):
        rows = "\n".join(
            f"  {name:<12} {(config.__doc__ or '').splitlines()[0]}" for name, (config, _) in sub_verbs.items()
        )
        print(f"usage: nacdrive {verb} {{{','.join(sub_verbs)}}} [options]\n\n{rows}")
        raise SystemExit(0 if rest else 2)
    if rest[0] not in sub_verbs:
        raise unknown_name(f"verb of 'nacdrive {verb}'", rest[0], sub_verbs)
    config, run = sub_verbs[rest[0]]
    return config, run, f"nacdrive {verb} {rest[0]}"


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of our own as one sentence; others as Python shows them."""
    if category is not DeprecationWarning and Path(filename).is_relative_to(PACKAGE):
        return f"nacdrive: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def main() -> None:
    """Entry point of the command ``nacdrive``."""
    warnings.formatwarning = format_warning
    try:
        code = dispatch(sys.argv[1:])
    except UserError as error:
        print(f"nacdrive: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("\nnacdrive: stopped; what was complete is kept.", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        # The reader of our output (such as `head`) has gone: nothing is wrong.
        sys.stderr.close()
        code = 0
    raise SystemExit(code)
