"""Every verb with every environment: an option is honoured, or refused in one sentence; none is ignored."""

from __future__ import annotations

import ast
import dataclasses
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from nacdrive.cli.drive import DriveConfig
from nacdrive.cli.expert import EvalConfig as ExpertEval
from nacdrive.cli.help import print_help, rows, texts
from nacdrive.cli.main import VERBS as ALL_VERBS
from nacdrive.cli.main import completion, dispatch, load_verb, parse
from nacdrive.cli.main import entries as verb_entries
from nacdrive.cli.words import is_shown, options, plain_type
from nacdrive.common.errors import UserError
from nacdrive.common.options import Options, type_hints
from nacdrive.common.paths import find_model
from nacdrive.envs.registry import ENVIRONMENTS, env_spec
from nacdrive.extras.arena.verb import ArenaConfig
from nacdrive.extras.hunt.config import HuntConfig
from nacdrive.models import load_policy
from nacdrive.rl.config import ExpertTrainConfig
from nacdrive.rollout.eval_config import EvalConfig
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig

PACKAGE = Path(__file__).resolve().parents[2] / "nacdrive"
VERBS: dict[str, Any] = {
    "drive": DriveConfig, "eval": EvalConfig, "record": RecordConfig, "arena": ArenaConfig, "expert eval": ExpertEval,
    "hunt": HuntConfig, "train": TrainConfig, "expert train": ExpertTrainConfig,
}  # fmt: skip
ENVS = [*ENVIRONMENTS.names(), "gym:CarRacing-v3"]
GIVEN: dict[str, Any] = {
    "renderer": "fast",
    "rule": "all-tiles-95",
    "track": "lake",
    "laps": 0.5,
    "speed": 12.0,
    "repeat": 3,
    "data": (Path("log"),),
    "every_frame": True,
    "min_return": 3.0,
    "steering_noise": 0.5,
    "log": Path("log"),
    "pace": 0.1,
    "limit_s": 0.5,
    "server": "eventlet",
    "seconds": 3.0,
    "max_frames": 100,
    "episodes": 2,
    "seed": 5,
}
"""A value of each option that not every environment has."""


def entries() -> dict[str, Any]:
    """Config class of each verb and sub-verb."""
    found = {}
    for verb in ALL_VERBS:
        for name, (config, _) in verb_entries(load_verb(verb)).items():
            found[f"nacdrive {verb} {name}".rstrip()] = config
    return found


def has(verb: str, option: str) -> bool:
    return option in {field.name for field in dataclasses.fields(VERBS[verb])}


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize(("verb", "option"), [(v, o) for v in VERBS for o in GIVEN if has(v, o)])
def test_an_option_is_honoured_or_refused(verb: str, option: str, env: str) -> None:
    spec = env_spec(env)
    if verb != "drive" and spec.realtime:
        # Who records or evaluates begins episodes when he wants: the built-in tracks take the simulator's place.
        spec = env_spec("udacity-track")
    somebody = {"driver": "my_module:MyDriver"} if spec.expert is None and not spec.realtime else {}
    if verb == "expert eval":
        somebody = {"expert": "my_module:MyExpert"}
    if verb == "hunt":
        somebody = {"expert": "my_module:MyExpert"} | ({"train": True} if option == "data" else {})
    if verb in ("train", "expert train") and (env.startswith("gym:") or env_spec(env).realtime):
        pytest.skip("refuses that environment itself")
    if verb == "arena":
        somebody = {"models": ("one.pt", "two.pt")}
        if env_spec(env).realtime:
            pytest.skip("an arena has no simulator on the wire")
    config = VERBS[verb]
    if verb == "drive" and option == "data":
        somebody["teach"] = True
    if verb == "train" and option in ("renderer", "track"):
        somebody["dagger"] = 1
    # What is learnt from are recordings, wherever they were made.
    unchecked = (*getattr(config, "unchecked", ()), *(["data"] if verb == "train" else []))
    if spec.honours(option) or option in unchecked:
        assert getattr(config(env=env, **somebody, **{option: GIVEN[option]}), option) == GIVEN[option]
    else:
        flag = option.replace("_", "-")
        with pytest.raises(UserError, match=rf"^--{flag} is .* --env {spec.name} does not know it: leave it out\.$"):
            config(env=env, **somebody, **{option: GIVEN[option]})


@pytest.mark.parametrize("verb", ["drive", "eval", "record"])
def test_sim_is_another_word_for_env(verb: str) -> None:
    config = parse(VERBS[verb], verb, ["--sim", "udacity"])
    assert config.env == ("udacity" if verb == "drive" else "udacity-track")


@pytest.mark.parametrize("verb", ["drive", "eval", "record", "arena"])
def test_the_same_words_disturb_the_camera_in_every_verb(verb: str) -> None:
    line = ["--noise", "0.1", "--blackout", "0.2", "--delay-steps", "3", "--brightness", "0.5"]
    config = parse(VERBS[verb], verb, line)
    (noise,) = (value for value in vars(config).values() if type(value).__name__ == "CameraNoise")
    assert (noise.noise, noise.blackout, noise.delay_steps, noise.brightness) == (0.1, 0.2, 3, 0.5)


def test_a_speed_is_at_most_the_cars_own() -> None:
    faster = parse(EvalConfig, "eval", ["--env", "udacity-track", "--speed", "40", "--car-top-speed", "40"])
    assert faster.speed == 40.0
    for env, top_speed in (("udacity-track", "35"), ("udacity-track", None), ("udacity", None)):
        line = ["--env", env, "--speed", "40", *(["--car-top-speed", top_speed] if top_speed else [])]
        with pytest.raises(UserError, match=f"does {top_speed or 30} miles per hour at most; .*--car-top-speed 40"):
            parse(DriveConfig, "drive", line)


WITH_OPTIONS = [config for config in VERBS.values() if config is not ExpertTrainConfig]


@cache
def unread() -> set[str]:
    """Options that are no attribute that the package reads, and no text of it."""
    names = {field.name for config in WITH_OPTIONS for field in dataclasses.fields(config)}
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        # To parse all files takes a second, and most names are read in the first few.
        if not any(name in source for name in names):
            continue
        read = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if owner != "self" or "config" not in path.name:
                    read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
        names = names - read
    return names


@pytest.mark.parametrize("config", WITH_OPTIONS, ids=lambda config: config.__name__)
def test_every_option_is_read_by_somebody(config: Any) -> None:
    """An option that no code looks at would be accepted and ignored."""
    assert not {field.name for field in dataclasses.fields(config)} & unread()


TWICE = {
    "data": "one folder, or several",
    "env": "train takes that of the task if none is given",
    "episodes": "eval and drive find out how many if it is not said",
    "epochs": "of bench, 0 is as many as the budget says",
    "folder": "data check takes that of one data set",
    "host": "sim udacity connects to it",
    "learning_rate": "an agent's falls from one number to another",
    "model": "a policy, perhaps one, or the layer of what is trained",
    "models": "several policies, or several layers",
    "out": "some verbs cannot do without",
    "port": "the simulator's own, of the one who waits and of the one who connects",
    "steps": "of a sequence, or of a round",
    "to": "formats of recordings, or of policies",
}
"""Options that are declared in more than one class, and why."""


def declarations(config: Any, declared: dict[str, set[type]]) -> None:
    kinds = type_hints(config)
    for field in dataclasses.fields(config):
        kind = plain_type(kinds[field.name])
        if dataclasses.is_dataclass(kind):
            if is_shown(kinds[field.name]):
                declarations(kind, declared)
            continue
        owner = next(base for base in config.__mro__ if field.name in texts(base))
        declared.setdefault(field.name, set()).add(owner)


def test_the_same_option_has_the_same_text_type_and_limits_in_every_verb() -> None:
    """It is declared once; a verb may give it another default alone."""
    declared: dict[str, set[type]] = {}
    for config in entries().values():
        declarations(config, declared)
    assert {name for name, owners in declared.items() if len(owners) > 1} == set(TWICE)
    assert sum(len(owners) for owners in declared.values() if len(owners) > 1) < 30


@pytest.mark.parametrize("program", entries())
def test_help_has_a_text_for_every_option_and_names_no_none(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = entries()[program]
    print_help(config, program)
    out = capsys.readouterr().out
    assert "None" not in out and all(text for _, _, text in rows(config, set(), config))
    assert {flag for flag in options(config) if flag not in out} == set()


@pytest.mark.parametrize(
    ("verb", "line", "option", "value"),
    [
        ("nacdrive eval", ["udacity/pilotnet", "--env", "udacity"], "model", "udacity/pilotnet"),
        ("nacdrive eval", ["--env", "udacity", "x.onnx", "logs"], "data", (Path("logs"),)),
        ("nacdrive drive", ["--no-wait", "--seed=3", "nac-steady"], "model", "nac-steady"),
        ("nacdrive drive", ["nac_steady.pt", "carracing-sample", "--teach"], "data", (Path("carracing-sample"),)),
        ("nacdrive eval", ["nac_stedy"], "model", "nac_stedy"),
        ("nacdrive eval", ["carracing/nac_stedy"], "model", "carracing/nac_stedy"),
        ("nacdrive eval", ["--env", "udacity", "--model=nac_steady", "lgs"], "data", (Path("lgs"),)),
        ("nacdrive eval", ["--env", "udacity", "my/lgs"], "data", (Path("my/lgs"),)),
        ("nacdrive hunt", ["nac_stedy"], "model", "nac_stedy"),
        ("nacdrive replay", ["nac_stedy"], "data", (Path("nac_stedy"),)),
        ("nacdrive data check", ["mnist", "there"], "folder", Path("there")),
        ("nacdrive data check", ["--folder", "there", "--name", "mnist"], "name", "mnist"),
        ("nacdrive data fetch", ["mnist", "har", "--folder", "there"], "names", ("mnist", "har")),
        ("nacdrive train", ["--data", "a", "b", "--epochs", "3"], "data", (Path("a"), Path("b"))),
        ("nacdrive train", ["--batch", "3"], "batch_size", 3),
        ("nacdrive recordings info", ["--data", "a"], "data", Path("a")),
        ("nacdrive recordings info", ["a"], "data", Path("a")),
        ("nacdrive replay", ["a", "b", "nac_steady.pt"], "model", "nac_steady.pt"),
        ("nacdrive expert train", ["--sim", "udacity-track"], "env", "udacity-track"),
        ("nacdrive expert train", ["--lr", "1e-3", "1e-4"], "learning_rate", (1e-3, 1e-4)),
        ("nacdrive expert train", ["--memory", "lstm"], "model", "lstm"),
        ("nacdrive expert imitate", ["--teacher", "racing-line", "--beta", "0.1"], "expert", "racing-line"),
        ("nacdrive export", ["--model", "nac_steady.pt"], "model", "nac_steady.pt"),
        ("nacdrive sim udacity", ["--window"], "show", True),
        ("nacdrive sim udacity", ["--window", "--no-window"], "show", False),
        ("nacdrive share", ["--data", "lap", "-o", "x.html"], "out", Path("x.html")),
        ("nacdrive arena", ["--model", "nac_steady", "--driver", "ppo"], "drivers", ("ppo",)),
    ],
)
def test_an_option_goes_by_each_of_its_words(verb: str, line: list[str], option: str, value: object) -> None:
    assert getattr(parse(entries()[verb], verb, line), option) == value


def test_a_spelling_of_before_goes_on_working_and_is_offered_to_nobody() -> None:
    assert parse(TrainConfig, "nacdrive train", ["--batch", "3", "--batch", "4"]).batch_size == 4
    assert "--n-epochs" not in completion("bash")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_verbs_and_options(shell: str) -> None:
    script = completion(shell)
    assert "--learning-rate" in script and "imitate" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "words", "others"),
    [
        ("eval --", {"--sim", "--env", "--json", "--quiet", "--trust"}, {"a.pt"}),
        ("eval -", {"-q"}, set()),
        ("eval --seed 3 --renderer ", {"fast", "official"}, {"a.pt", "--seed"}),
        ("hunt --areas ", {"roads", "traffic"}, {"a.pt"}),
        ("help ", {"drive", "eval"}, {"--env"}),
        ("drive ", {"a.pt"}, {"--env"}),
        ("expert ", {"train", "imitate"}, {"a.pt"}),
    ],
)
def test_bash_offers(line: str, words: set[str], others: set[str], tmp_path: Path) -> None:
    (tmp_path / "a.pt").touch()
    *typed, current = line.split(" ")
    asked = " ".join(f'"{word}"' for word in ["nacdrive", *typed, current])
    ask = f"COMP_WORDS=({asked}); COMP_CWORD={len(typed) + 1}; _nacdrive; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash"], input=f"{completion('bash')}\n{ask}\n", cwd=tmp_path, text=True, check=True, capture_output=True
    )
    offered = set(done.stdout.split())
    assert words <= offered and not others & offered


def test_help_names_what_every_verb_takes_and_json_where_there_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    for config, verb in ((EvalConfig, "eval"), (DriveConfig, "drive")):
        with pytest.raises(SystemExit):
            parse(config, f"nacdrive {verb}", ["--help"])
        out = capsys.readouterr().out
        assert "-q, --quiet" in out and ("--json" in out) == (verb == "eval")


def test_titles_of_panels_are_short() -> None:
    titles = {title for config in entries().values() for title, _, _ in rows(config, set(), config)}
    assert max(map(len, titles)) < 50


def test_a_shipped_model_has_one_name_in_every_verb_and_in_python() -> None:
    path = find_model("carracing/nac_steady")
    assert path == find_model("nac_steady.pt") == find_model("nac-steady", "carracing") == find_model(path)
    assert load_policy("udacity/nac_exact").config.task == "udacity"


def test_what_is_named_and_given_without_a_name_too_is_refused() -> None:
    with pytest.raises(UserError, match=r"^--model is given, and 'nac_steady' without a name is one more"):
        parse(EvalConfig, "nacdrive eval", ["nac_steady", "--model", "nac_exact"])


def test_behind_an_unknown_option_its_value_is_not_blamed_on_another() -> None:
    with pytest.raises(UserError, match="unrecognized options: --wrong"):
        parse(EvalConfig, "nacdrive eval", ["--model", "nac_exact", "--wrong", "3"])


def test_each_of_several_values_is_one_of_the_few_that_there_are() -> None:
    class Several(Options):
        areas: tuple[Literal["a", "b"], ...] = ("a", "b")

    assert Several(areas=("b",)).areas == ("b",)
    with pytest.raises(UserError, match=r"^--areas is c: give a or b"):
        Several(areas=("a", "c"))  # type: ignore[arg-type]


def test_several_values_are_given_at_once_and_end_at_the_next_option() -> None:
    line = ["--task", "carracing", "--data", "a", "b", "-o", "here"]
    config = parse(TrainConfig, "nacdrive train", line)
    assert (config.data, config.out) == ((Path("a"), Path("b")), Path("here"))
    for twice in (["--data", "a", "--data", "b"], ["--data=a", "--data=b"]):
        with pytest.raises(UserError, match="--data is given twice, and only the last would count"):
            parse(TrainConfig, "nacdrive train", ["--task", "carracing", *twice])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("expert imitate --sequence-length 5", "--sequence-length is for a memory"),
        ("expert eval --resume", "--resume and --overwrite are of what --out holds: give --out"),
        ("replay carracing-sample --episode 1", "--episode is of --video"),
        ("replay carracing-sample carracing-sample --video two.mp4", "--video films one recording"),
        ("drive --env udacity-track --driver constant --speed 10", "--speed is not for --driver constant"),
        ("train --task udacity --camera-mount straight", "options of the road are of the drives of DAgger"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        dispatch(line.split())
    assert not list(tmp_path.iterdir())


def test_a_table_looks_for_data_where_the_other_verbs_do() -> None:
    lines = "from nacdrive.extras.bench.config import TableConfig; print(TableConfig().data)"
    given = {**os.environ, "NACDRIVE_DATA": "elsewhere"}
    answer = subprocess.run([sys.executable, "-c", lines], env=given, capture_output=True, text=True, check=True)
    assert answer.stdout == "elsewhere\n"
