"""``nacdrive VERB ...``: find the verb's file, let tyro parse its config, print one sentence for a user's mistake."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from nacdrive.common.errors import UserError, check_known
from nacdrive.common.files import os_error_sentence
from nacdrive.common.optional import missing_extra
from nacdrive.common.paths import PACKAGE
from nacdrive.common.plugins import REFERENCE, trust
from nacdrive.common.progress import set_quiet
from nacdrive.common.result_folder import release_folders
from nacdrive.common.version import __version__

if TYPE_CHECKING:
    from nacdrive.common.options import Options

T = TypeVar("T", bound="Options")

# Verb -> what it does. The verb's file is imported only when it is called, so that --help answers at once.
VERBS = {
    "demo": "record, train, drive and watch on CarRacing: the whole job in one command",
    "record": "let an expert drive and keep its episodes",
    "train": "train a policy on recordings",
    "drive": "drive with a policy and watch it in a browser",
    "arena": "several policies, the expert, a person on one track, side by side",
    "eval": "drive many unseen seeds: metrics, report, videos",
    "hunt": "search for episodes that a policy fails and a reference driver passes",
    "replay": "watch recorded episodes again, beside a policy or another run",
    "share": "a lap and the network in one page, to send around: what if?",
    "playground": "a world and the network in one page: play with it, race it",
    "explain": "effect, saliency, neurons, wiring: why a policy steers, measured, and figures of what it looks at",
    "export": "onnx, c, html, safetensors: a policy for other programs and machines without torch",
    "data": "list, fetch, check: the public data sets beside driving",
    "recordings": "info, check, merge, import, export, card: look after recorded episodes",
    "sim": "udacity, roads: the built-in track as a stand-in for the Udacity simulator, and a look at random roads",
    "expert": "train, imitate, eval, export: trained experts",
    "bench": "table, plan, run, report, robustness, runtime: every sequence layer on the same tasks",
    "predict": "remaining life of bearings, digits in pictures, activities in recordings of worn tags",
    "doctor": "what works on this machine, and how to mend what does not",
}

# Verbs of ``nacdrive/extras``: verb -> its file there.
EXTRAS = {
    "arena": "arena.verb",
    "bench": "bench.verb",
    "explain": "explain.verb",
    "export": "export.verb",
    "hunt": "hunt.verb",
    "sim": "simulator.verb",
}
# Verbs whose result --json prints: what they return, or what comes after the exit code.
RESULTS = (
    *("record", "train", "eval", "hunt", "predict", "doctor", "expert eval", "recordings info", "recordings check"),
    *(f"bench {name}" for name in ("table", "plan", "run", "report", "robustness", "runtime")),
    *("arena", "explain effect", "data list", "data check"),
)
# Old spelling of a verb -> the new one.
RENAMED = {"classify": ("predict", "--task", "emnist")}


def load_verb(verb: str) -> ModuleType:
    """The module of a verb, which holds ``run``, or ``VERBS`` of its own."""
    return import_module(f"nacdrive.extras.{EXTRAS[verb]}" if verb in EXTRAS else f"nacdrive.cli.{verb}")


def entries(module: Any) -> dict[str, tuple[type, Callable[[Any], Any]]]:
    """Config class and function of each sub-verb of a verb's module; of one that has none those of ``run``, unnamed."""
    if hasattr(module, "VERBS"):
        return dict(module.VERBS)
    return {"": (getattr(module, module.run.__annotations__["config"]), module.run)}


def usage() -> str:
    """The text of ``nacdrive --help``."""
    rows = "\n".join(f"  {verb:<12} {text}" for verb, text in VERBS.items())
    return (
        f"nacdrive {__version__}: small continuous-time attention networks that drive\n\n"
        f"usage: nacdrive VERB [options]\n\n{rows}\n\n"
        "nacdrive help VERB lists the options of a verb; --print-completion bash or zsh completes them.\n"
        "Every verb takes -q, --quiet: no progress, only results and errors;\n"
        "--json, where there is a result: that alone on stdout, as JSON; and\n"
        "--trust MODULE: somebody's own code that files may name.\n"
    )


def dispatch(arguments: list[str]) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    flags = {"-q", "--quiet", "--json"} & set(arguments)
    set_quiet(quiet=bool(flags - {"--json"}))
    arguments = take_trust([word for word in arguments if word not in flags])
    while arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"nacdrive {__version__}")
        return 0
    if arguments[0].partition("=")[0] == "--print-completion":
        print(completion(arguments[0].partition("=")[2] or " ".join(arguments[1:])), end="")
        return 0
    verb, *rest = arguments
    if verb in RENAMED:
        say(f"nacdrive: 'nacdrive {verb}' is now 'nacdrive {' '.join(RENAMED[verb])}'.")
        verb, *rest = *RENAMED[verb], *rest
    check_known("verb", verb, VERBS)
    module = load_verb(verb)
    config_class, run, program = module_entry(module, verb, rest)
    if rest and hasattr(module, "VERBS"):
        rest = rest[1:]
    config: Any = parse(config_class, program, rest)
    if "--json" not in flags:
        return exit_code_of(run(config))[0]
    if program.removeprefix("nacdrive ") not in RESULTS:
        raise UserError(f"--json prints results, and '{program}' has none to print: leave it out.")
    with stdout_to_stderr():
        code, result = exit_code_of(run(config))
    print_json(result)
    return code


def exit_code_of(outcome: Any) -> tuple[int, Any]:
    """Exit code and result of what a verb returns: nothing, a code, a result, or a code and a result."""
    if isinstance(outcome, tuple):
        return outcome
    return (outcome or 0, None) if outcome is None or isinstance(outcome, int) else (0, outcome)


def print_json(result: Any) -> None:
    """Print a verb's result as one JSON document; null stands for numbers that JSON has not."""
    from nacdrive.common.runs import plain

    known = json.loads(json.dumps(plain(result)), parse_constant=lambda name: None)
    print(json.dumps(known, indent=2))


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What is printed within goes to stderr, that of libraries and worker processes too."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def completion(shell: str) -> str:
    """The script that completes verbs and options in ``shell``."""
    from nacdrive.cli.completion import script

    check_known("shell", shell, ("bash", "zsh"))
    configs = [
        (f"{verb} {name}".rstrip(), config) for verb in VERBS for name, (config, _) in entries(load_verb(verb)).items()
    ]
    return script(shell, configs, VERBS)


def take_trust(arguments: list[str]) -> list[str]:
    """The command line without ``--trust MODULE``, which every verb has; what the line names itself is trusted too."""
    if "" in arguments or any(word.startswith("--") and word.endswith("=") for word in arguments):
        raise UserError("an argument is empty: give it a value, or leave its option out.")
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word.partition("=")[0] == "--trust":
            module = word.partition("=")[2] or next(words, "")
            if not re.fullmatch(r"[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?", module):
                raise UserError("--trust takes the name of a module that files may name, such as my_layer.")
            trust(module)
        else:
            rest.append(word)
    trust(*(match[1] for match in map(REFERENCE.search, rest) if match))
    return rest


def parse(config_class: type[T], program: str, arguments: list[str]) -> T:
    """The config that ``arguments`` ask for, or a ``UserError`` with the first mistake; ``--help`` ends the program."""
    if {"-h", "--help"} & set(arguments):
        from nacdrive.cli.help import print_help

        print_help(config_class, program, has_result=program.removeprefix("nacdrive ") in RESULTS)
        raise SystemExit(0)
    import tyro

    from nacdrive.cli.words import rewrite
    from nacdrive.common.options import check_options

    arguments = rewrite(config_class, arguments)
    messages = io.StringIO()
    try:
        with redirect_stderr(messages):
            config = tyro.cli(config_class, prog=program, args=arguments, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as end:
        if not end.code:
            raise
        raise UserError(f"{first_mistake(messages.getvalue())} ('{program} --help' lists the options).") from None
    except (ValueError, OverflowError) as error:
        # Of a value that Python itself refuses, such as a number of thousands of digits.
        raise UserError(f"{str(error).splitlines()[0]} ('{program} --help' lists the options).") from error
    check_options(config)
    return config


def first_mistake(box: str) -> str:
    """What tyro says of the first mistake, out of the frame that it draws around it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│| ") for row in text.splitlines() if not row.startswith(("╭", "╰", "+"))]
    parts: list[list[str]] = [[]]
    for row in rows:
        if row and not row.strip("─-"):
            parts.append([])
        elif row:
            parts[-1].append(row)
    if "╭" not in text and len(parts) > 1:
        # Where the terminal's encoding has no frames, a line divides the title from the rest.
        del parts[0]
    sentence = re.sub(r"'None', |, 'None'(?=\))", "", " ".join(parts[0])) or "the command line cannot be read"
    # An option that need not be given is of one of two types to tyro, and only one of them can be typed.
    if match := re.match(r"(.*?): no type matching {None}\|{?([A-Z ]+)}? could be .*? from \[(.*?)\]", sentence):
        kinds = [{"FLOAT": "a number", "INT": "a whole number"}.get(kind, kind) for kind in match[2].split()]
        sentence = f"{match[1]}: give {' and '.join(kinds)} instead of {match[3]}"
    sentence = re.sub(r"invalid literal for int.*?: ", "give a whole number instead of ", sentence)
    sentence = sentence.replace("could not convert string to float:", "give a number instead of")
    hint = next((part for part in parts[1:] if part and part[0].startswith("Perhaps you meant")), None)
    if hint is not None and len(hint) > 1:
        sentence += f" (did you mean {hint[1].split()[0].rstrip(',')}?)"
    return sentence[0].lower() + sentence[1:].rstrip(".")


def module_entry(module: Any, verb: str, rest: list[str]) -> tuple[type, Callable[[Any], Any], str]:
    """Config class, function and program name of a verb, or of the sub-verb that ``rest`` begins with."""
    sub_verbs = entries(module)
    if "" in sub_verbs:
        return *sub_verbs[""], f"nacdrive {verb}"
    if not rest or rest[0] in ("-h", "--help"):
        rows = "\n".join(
            f"  {name:<12} {(config.__doc__ or '').splitlines()[0]}" for name, (config, _) in sub_verbs.items()
        )
        print(f"usage: nacdrive {verb} {{{','.join(sub_verbs)}}} [options]\n\n{rows}")
        raise SystemExit(0 if rest else 2)
    check_known(f"verb of 'nacdrive {verb}'", rest[0], sub_verbs)
    config, run = sub_verbs[rest[0]]
    return config, run, f"nacdrive {verb} {rest[0]}"


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of our own as one sentence; others as Python shows them."""
    if category is not DeprecationWarning and Path(filename).is_relative_to(PACKAGE):
        return f"nacdrive: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def stop_like_ctrl_c() -> None:
    """SIGTERM and a closed terminal end a verb as Ctrl-C does, so that they keep what Ctrl-C keeps.

    SIGINT too, where whoever started the process had it ignored, as shells do for a command in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.default_int_handler)
    # nohup asks for going on without a terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def open_missing_streams() -> None:
    """Streams that were closed by whoever started the process read and write nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path may hold what the terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")


def say(sentence: str) -> None:
    """Print to the terminal, if it is still there."""
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


def main() -> None:
    """Entry point of the command ``nacdrive``."""
    open_missing_streams()
    stop_like_ctrl_c()
    warnings.formatwarning = format_warning
    try:
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        say(f"nacdrive: {error}")
        code = 2
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        say(f"nacdrive: {missing}")
        code = 2
    except KeyboardInterrupt as stop:
        say(f"\nnacdrive: stopped; {str(stop) or 'what was complete is kept.'}")
        code = 130
    except (BrokenPipeError, SystemExit) as end:
        # The reader of our output (such as `head`) has gone: nothing is wrong. Rich ends the program with 1 then.
        code = 0 if any(isinstance(one, BrokenPipeError) for one in (end, end.__context__)) else getattr(end, "code", 0)
    except (OSError, RuntimeError) as error:
        # pathlib makes a RuntimeError of links that lead round in a circle.
        loop = isinstance(error.__context__, OSError) and "Symlink loop" in str(error)
        sentence = os_error_sentence(error.__context__ if loop else error)
        if sentence is None:
            raise
        say(f"nacdrive: {sentence}")
        code = 2
    finally:
        release_folders()
    try:
        sys.stdout.flush()
    except OSError:
        # Or Python says so itself, and ends with another code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(code)


if __name__ == "__main__":
    main()
