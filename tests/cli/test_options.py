"""Every verb with every environment: an option is honoured, or refused in one sentence; none is ignored."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nacdrive.cli.drive import DriveConfig
from nacdrive.cli.eval import EvalConfig
from nacdrive.cli.main import parse
from nacdrive.common.errors import UserError
from nacdrive.envs.registry import ENVIRONMENTS, env_spec
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig

PACKAGE = Path(__file__).resolve().parents[2] / "nacdrive"
VERBS: dict[str, Any] = {"drive": DriveConfig, "eval": EvalConfig, "record": RecordConfig}
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


def has(verb: str, option: str) -> bool:
    return option in {field.name for field in dataclasses.fields(VERBS[verb])}


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize(("verb", "option"), [(v, o) for v in VERBS for o in GIVEN if has(v, o)])
def test_an_option_is_honoured_or_refused(verb: str, option: str, env: str) -> None:
    spec = env_spec(env)
    if verb != "drive" and spec.realtime:
        # Who records or evaluates begins episodes when he wants: the built-in tracks take the simulator's place.
        spec = env_spec("udacity-track")
    somebody = {"driver": "my_module:MyDriver"} if spec.expert is None else {}
    config = VERBS[verb]
    if spec.honours(option):
        assert getattr(config(env=env, **somebody, **{option: GIVEN[option]}), option) == GIVEN[option]
    else:
        flag = option.replace("_", "-")
        with pytest.raises(UserError, match=rf"^--{flag} is .* --env {spec.name} does not know it: leave it out\.$"):
            config(env=env, **somebody, **{option: GIVEN[option]})


@pytest.mark.parametrize("verb", VERBS)
def test_sim_is_another_word_for_env(verb: str) -> None:
    config = parse(VERBS[verb], verb, ["--sim", "udacity"])
    assert config.env == ("udacity" if verb == "drive" else "udacity-track")


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_words_disturb_the_camera_in_every_verb(verb: str) -> None:
    line = ["--noise", "0.1", "--blackout", "0.2", "--delay-steps", "3", "--brightness", "0.5"]
    config = parse(VERBS[verb], verb, line)
    (noise,) = (value for value in vars(config).values() if type(value).__name__ == "CameraNoise")
    assert (noise.noise, noise.blackout, noise.delay_steps, noise.brightness) == (0.1, 0.2, 3, 0.5)


@pytest.mark.parametrize("config", [*VERBS.values(), TrainConfig], ids=lambda config: config.__name__)
def test_every_option_is_read_by_somebody(config: Any) -> None:
    """An option that no code looks at would be accepted and ignored."""
    read = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if owner != "self" or "config" not in path.name:
                    read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
    assert not {field.name for field in dataclasses.fields(config)} - read
