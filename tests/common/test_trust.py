"""Code that a file names is imported only if the user named it too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nacdrive.cli.main import dispatch, take_trust
from nacdrive.common import plugins
from nacdrive.common.errors import UserError
from nacdrive.common.parallel import run_jobs
from nacdrive.common.plugins import TRUST, check_trusted, trust, trusted
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.envs.registry import action_names
from nacdrive.extras.bench.report import write_report
from nacdrive.models import files, load_policy
from nacdrive.models.agents import network

SHIPPED = Path(__file__).parents[2] / "agents"
SAMPLE = Path(__file__).parents[2] / "recordings" / "carracing-sample"
CODE = """
import pathlib
pathlib.Path("ran").write_text("x")
from nacdrive.layers.rnn import GRULayer as Layer
from nacdrive.tasks.emnist import EMNIST as Task
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with code of a stranger's in a subfolder of it."""
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "helper.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(TRUST, "")
    for name in ("stranger", "stranger.helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def naming(source: Path, kind: str, part: str, target: Path, **changes: Any) -> Path:
    """A shipped model file whose JSON ``part`` names code of a stranger's."""
    content = read_tensor_file(source, kind, None)
    about = json.loads(content[part]) | changes
    tensors = content.pop("tensors")
    content = {key: value for key, value in content.items() if key not in ("kind", "version")}
    write_tensor_file(target, kind, 1, {**content, part: json.dumps(about)}, tensors)
    return target


@pytest.fixture
def policy(folder: Path) -> Path:
    return naming(
        SHIPPED / "carracing" / "nac_steady.pt", files.KIND, "config", folder / "best.pt", model="stranger.helper:Layer"
    )


LINES = [
    "drive --model best.pt --headless",
    "eval --model best.pt --episodes 1 --out e",
    "export best.pt --to c --out e.c",
    "export best.pt --to onnx --out e.onnx",
    f"share {SAMPLE} --model best.pt --out e.html",
    "arena --models best.pt best.pt --headless --out e",
    "explain wiring --model best.pt --out e.png",
]


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        *((line, "pt") for line in LINES),
        (LINES[2], "safetensors"),
        *(pytest.param(line, "safetensors", marks=pytest.mark.nightly) for line in LINES if line != LINES[2]),
    ],
)
def test_no_verb_imports_what_a_model_file_names(policy: Path, folder: Path, line: str, ending: str) -> None:
    if ending != "pt":
        content = read_tensor_file(policy, files.KIND, 1)
        tensors = content.pop("tensors")
        texts = {key: value for key, value in content.items() if key not in ("kind", "version")}
        write_tensor_file(folder / "best.safetensors", files.KIND, 1, texts, tensors)
    with pytest.raises(UserError, match=r"best\.\w+ names stranger\.helper:Layer, .*--trust stranger\.helper"):
        dispatch(line.replace("best.pt", f"best.{ending}").split())
    assert not (folder / "ran").exists() and "stranger" not in sys.modules


def test_experts_and_networks_for_series_name_nothing_either(folder: Path) -> None:
    memory = {"layer": "stranger.helper:Layer", "width": 8, "heads": 1, "window": 4, "gap_s": 0.1, "options": {}}
    source = SHIPPED / "carracing" / "ppo" / "ppo.pt"
    for changes in ({"env": "stranger.helper:make"}, {"env": "gym:stranger.helper:Env-v0"}, {"memory": memory}):
        expert = naming(source, network.KIND, "about", folder / "expert.pt", **changes)
        with pytest.raises(UserError, match=r"names .*stranger\.helper:.*--trust stranger"):
            dispatch(["expert", "eval", "--expert", str(expert), "--episodes", "1"])
        with pytest.raises(UserError, match="--trust stranger"):
            dispatch(["record", "--expert", str(expert), "--episodes", "1", "--out", "r"])
    assert not (folder / "ran").exists()


def test_results_in_a_text_file_name_nothing(folder: Path) -> None:
    row = {
        "key": "a", "status": "done", "asked": ["stranger.helper:Task"], "task": "stranger.helper:Task", "model": "gru",
        "fold": 0, "repeat": 0, "made_up": [], "scores": {"stranger.helper:Task": {"accuracy": 1.0}},
        "parameters": 1, "train_s": 1.0, "wall_s": 1.0, "epochs": 1, "train_sequences": 1,
        "record": {"config": {"protocol": "sequence", "size": {}, "folds": 1, "seed": 0}},
    }  # fmt: skip
    (folder / "results.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=r"names stranger\.helper:Task.*--trust stranger"):
        write_report([folder], folder / "out", "")
    with pytest.raises(UserError, match=r"names stranger\.helper:Task.*--trust stranger"):
        dispatch(["bench", "robustness", str(folder), "--out", "o"])
    assert not (folder / "ran").exists()


def test_labels_import_nothing(folder: Path) -> None:
    assert action_names("stranger.helper:Task") == () and len(action_names("carracing")) == 5
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("way", ["option", "same name", "environment", "python"])
def test_what_the_user_names_is_imported(policy: Path, folder: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted_names: tuple[str, ...] = ()
    if way == "option":
        assert take_trust(["eval", "--trust", "stranger", "--model", "x"]) == ["eval", "--model", "x"]
    elif way == "same name":
        assert len(take_trust(["bench", "table", "--models=stranger.helper:Layer"])) == 3
    elif way == "environment":
        monkeypatch.setenv(TRUST, "other,stranger.helper")
    else:
        trusted_names = ("stranger",)
    # Its module is imported, and has no such layer as the file's tensors are of.
    with pytest.raises(UserError) as error:
        load_policy(policy, trust=trusted_names)
    assert "--trust" not in str(error.value) and (folder / "ran").exists()


def test_what_is_loaded_by_name_in_python_may_be_named_by_files_too(policy: Path, folder: Path) -> None:
    plugins.Registry("layer", "nacdrive.none", {}).load("stranger.helper:Layer")
    check_trusted(policy, "stranger.helper:Layer")
    with pytest.raises(UserError, match=r"--trust stranger\.helper"):
        check_trusted(policy, "stranger.helper:Task")


def test_names_that_are_no_code(folder: Path) -> None:
    check_trusted("x", "carracing", "random:7:", ["gym:CartPole-v1", {"a": ["lake", 3, None]}], "http://x", "7:30")
    for name in ("this:s", "a.b:C.d", "gym:a:Env-v0"):
        with pytest.raises(UserError, match="--trust"):
            check_trusted("x", {"deep": [{"er": name}]})
    trust("a")
    check_trusted("x", "a:B", "a.b:C")
    with pytest.raises(UserError, match="--trust ab"):
        check_trusted("x", "ab:C")
    for wrong in ("--model", "a b"):
        with pytest.raises(UserError, match="--trust takes the name of a module"):
            take_trust(["eval", f"--trust={wrong}"])
    with pytest.raises(UserError, match="an argument is empty"):
        take_trust(["eval", "--trust="])


def test_workers_trust_what_their_parent_trusts() -> None:
    trust("stranger")
    ((_, names),) = run_jobs(names_of, ["job"], workers=1)
    assert "stranger" in names


def names_of(job: str) -> set[str]:
    return trusted()
