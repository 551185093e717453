"""``--json``: a verb's result, and nothing else, on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nacdrive.cli import main as cli
from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from tests.helpers import bearings as made_bearings
from tests.helpers.nightly import daily

SAMPLE = shipped("recordings") / "carracing-sample"
CASES = {
    "record": "--expert geometric --episodes 1 --max-frames 12 --workers 1 --out {out}",
    "train": "--data {sample} --model gru --epochs 1 --out {out}",
    "eval": "--driver geometric --expert none --episodes 2 --max-frames 12 --workers 2 --no-videos --out {out}",
    "expert eval": "--expert geometric --episodes 1 --renderer fast",
    "recordings info": "{sample}",
    "recordings check": "{sample}",
    "bench plan": "--tasks synthetic-decay --models gru --budget smoke",
    "bench table": "--tasks synthetic-decay --models gru --budget smoke --epochs 1 --workers 1 --out {out}",
    "bench runtime": "--models gru --steps 16 --passes 1 --features 8 --heads 2 --out {out}",
    "arena": "--driver geometric constant --headless --max-frames 12 --renderer fast --out {out}",
    "explain effect": "--every 300 --out {out}.png",
    "data list": "",
    "doctor": "--page-port 0",
}
FIELDS = {
    "record": {"folder", "episodes", "dropped", "frames"},
    "train": {"model", "episodes", "train_frames", "valid_frames", "valid_loss", "valid_accuracy"},
    "eval": {"episodes", "return", "env"},
    "expert eval": {"episodes", "return"},
    "recordings info": {"folder", "meta", "episodes", "damaged"},
    "recordings check": {"sound", "problems"},
    "bench plan": {"task", "model", "cells", "done", "seconds"},
    "bench table": {"folder", "cells"},
    "bench runtime": {"model", "device", "status"},
    "arena": {"geometric", "constant"},
    "explain effect": {"kind", "name", "measured", "decides"},
    "data list": {"name", "what", "folder", "there"},
    "doctor": {"name", "works", "detail", "essential"},
}


@pytest.mark.parametrize("verb", daily(CASES, set(CASES) - {"doctor", "arena", "explain effect"}))
def test_stdout_is_one_json_document(verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = CASES[verb].format(out=tmp_path / "out", sample=SAMPLE)
    code = cli.dispatch([*verb.split(), *line.split(), "--json", "-q"])
    out, err = capfd.readouterr()
    result: Any = json.loads(out)
    assert FIELDS[verb] <= set(result[0] if isinstance(result, list) else result)
    assert code == 0 or verb == "doctor"
    assert err, "what is said to people is on the other stream"


@pytest.mark.nightly
def test_what_is_made_of_a_table_is_a_document_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = str(tmp_path / "table")
    cli.dispatch(["bench", "table", *CASES["bench table"].format(out=table).split()])
    for verb, fields in (("report", {"section", "metric", "lines"}), ("robustness", {"task", "model", "condition"})):
        capfd.readouterr()
        assert cli.dispatch(["bench", verb, table, "--out", str(tmp_path / verb), "--json", "-q"]) == 0
        assert fields <= set(json.loads(capfd.readouterr().out)[0])


def test_a_damaged_data_set_is_a_document_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (made_bearings.xjtu(tmp_path) / "9.csv").unlink()
    assert cli.dispatch(["data", "check", "xjtu-sy", str(tmp_path), "--json"]) == 1
    assert [finding["kind"] for finding in json.loads(capfd.readouterr().out)] == ["problem", "sound"]


def test_a_damaged_recording_is_a_document_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in SAMPLE.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[: -1 if path.suffix == ".parquet" else None])
    assert cli.dispatch(["recordings", "check", str(tmp_path), "--json"]) == 1
    result = json.loads(capfd.readouterr().out)
    assert result["problems"] and result["sound"] == []


def test_numbers_that_json_has_not_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    cli.print_json({"a": float("nan"), "b": (float("inf"), 1), "c": Path("ä")})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1], "c": "ä"}


@pytest.mark.parametrize("verb", ["demo", "drive", "share", "recordings merge", "data fetch", "explain saliency"])
def test_a_verb_without_a_result_refuses(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"share": [str(SAMPLE)], "recordings merge": ["a", "b", "--out", "c"], "data fetch": ["mnist"]}
    with pytest.raises(UserError, match=f"^--json prints results, and 'nacdrive {verb}' has none"):
        cli.dispatch([*verb.split(), *more.get(verb, []), "--json"])
    assert capsys.readouterr().out == ""


def test_a_mistake_leaves_stdout_empty(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError):
        cli.dispatch(["recordings", "info", "nowhere", "--json"])
    assert capfd.readouterr() == ("", "")


def test_every_verb_with_a_result_is_a_verb() -> None:
    for name in cli.RESULTS:
        verb, _, sub = name.partition(" ")
        assert verb in cli.VERBS and (not sub or sub in cli.load_verb(verb).VERBS)


def test_export_of_another_recording_than_the_simulators_names_what_takes_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'carracing'.*give --to lerobot, minari or donkeycar\.$"):
        cli.dispatch(["recordings", "export", str(SAMPLE), "--out", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()


def test_it_is_json_in_every_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    cli.print_json({"folder": "Aufnahme-ä-😀"})
    printed = capsys.readouterr().out
    assert printed.isascii() and json.loads(printed) == {"folder": "Aufnahme-ä-😀"}
