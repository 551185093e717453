"""Thousands of command lines made from the options of all verbs: a config or one sentence, never a traceback.

Lines are parsed and checked as ``main`` does it; no work is done.
"""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from nacdrive.cli.main import VERBS, load_verb, parse
from nacdrive.cli.main import entries as verb_entries
from nacdrive.common.errors import UserError
from nacdrive.common.options import Port, check_options, check_value

HUGE = "1" + "0" * 40
NUMBERS = ("0", "1", "-1", "2", "7", "0.5", "-0.5", "1e-4", "1e308", "nan", "inf", "-inf", HUGE, "-" + HUGE)
WORST = ("0", "-1", "0.5", "1e308", "nan", "-inf", HUGE)
TEXTS = ("x", "", "3", "-3", "nope.pt", "carracing", "udacity", "a:b", ":", "..", "/proc/none", "ü", "a b", "\udcff")
NEVER = {"nan", "inf", "-inf", HUGE, "-" + HUGE}
LINES_EACH = 60


def entries() -> dict[str, type]:
    """Config class of each verb and sub-verb."""
    result = {}
    for verb in VERBS:
        for name, (config, _) in verb_entries(load_verb(verb)).items():
            result[f"nacdrive {verb} {name}".rstrip()] = config
    return result


ENTRIES = entries()


def numeric(kind: Any) -> bool:
    return any(part in str(kind) for part in ("int", "float")) and "Literal" not in str(kind)


@cache
def options(config_class: type) -> dict[str, Any]:
    """Options and their types, those of configs within a config too."""
    hints = get_type_hints(config_class)
    result = {}
    for field in dataclasses.fields(config_class):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            result |= options(kind) if isinstance(kind, type) else {}
        else:
            result["--" + field.name.replace("_", "-")] = kind
    return result


def lines(config_class: type) -> Iterator[list[str]]:
    """Every number with the worst values, then random lines."""
    known = options(config_class)
    for flag, kind in known.items():
        if numeric(kind):
            yield from ([flag, value] for value in WORST)
    draw = random.Random(config_class.__module__ + config_class.__name__)
    for _ in range(LINES_EACH):
        line: list[str] = []
        for flag in draw.choices([*known, "--no-such-option", ""], k=draw.randrange(1, 5)):
            line += [flag] if flag else []
            line += draw.choices(NUMBERS + TEXTS, k=draw.choice((0, 1, 1, 1, 2)))
        yield line


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly), 29])
@pytest.mark.parametrize("program", ENTRIES)
def test_a_command_line_gives_a_config_or_one_sentence(
    program: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # One of 29, which is no multiple of seven: each of the worst values meets some of the numeric options.
    for line in islice(lines(ENTRIES[program]), 0, None, every):
        try:
            config = parse(ENTRIES[program], program, line)
        except UserError as error:
            sentence = str(error)
            assert sentence and "\n" not in sentence and "Traceback" not in sentence, line
        else:
            taken = {flag: value for flag, value in pairwise(line) if flag.startswith("--")}
            wrong = {
                flag: value
                for flag, value in taken.items()
                if numeric(options(ENTRIES[program]).get(flag)) and value in NEVER and line.count(flag) == 1
            }
            assert not wrong, f"{program} {line} is accepted as {config}"
    out, err = capsys.readouterr()
    assert not out and not err
    assert not list(tmp_path.iterdir())


def test_the_fuzz_is_of_a_size() -> None:
    assert sum(len(list(lines(config))) for config in ENTRIES.values()) >= 2000


@dataclasses.dataclass
class Inner:
    noise: float = 0.0


@dataclasses.dataclass
class Outer:
    seed: int = 0
    port: Port | None = None
    lr: tuple[float, float] = (1.0, 2.0)
    inner: Inner = dataclasses.field(default_factory=Inner)
    flag: bool = True


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Outer(seed=-1), "--seed is -1: give 0 to 2147483647."),
        (Outer(seed=2**31), "--seed is 2147483648"),
        (Outer(seed=10**5000), "--seed is too large"),
        (Outer(port=65536), "--port is 65536: give 0 to 65535."),
        (Outer(lr=(1.0, float("nan"))), "--lr is nan: give a finite number."),
        (Outer(inner=Inner(float("inf"))), "--noise is inf"),
    ],
    ids=["negative", "large", "huge", "port", "tuple", "nested"],
)
def test_numbers_are_checked_in_one_place(config: Outer, said: str) -> None:
    with pytest.raises(UserError) as caught:
        check_options(config)
    assert str(caught.value).startswith(said)
    check_options(Outer(port=8090))


def test_a_text_that_is_no_utf8_is_told() -> None:
    with pytest.raises(UserError, match=r"--data .a\\udcff' is not UTF-8"):
        check_value("--data", Path("a\udcff"))


@pytest.mark.parametrize("address", ["http://x/y", "s3://bucket", "hf://a/b", "file:///tmp/x"])
def test_an_address_is_no_path(address: str) -> None:
    with pytest.raises(UserError, match=rf"--out is an address that begins with {address.partition('/')[0]}//: give"):
        check_value("--out", Path(address))
    check_value("--out", Path("a:b/c"))
    check_value("--out", Path("C:/x"))


@pytest.mark.nightly
def test_damaged_files_and_whole_command_lines_end_without_a_traceback() -> None:
    tool = Path(__file__).parents[2] / "tools" / "fuzz.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--files", "24", "--lines", "24", "--seed", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
