"""Recording where people watch, and where a person drives."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Tick
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig

SEED = 3_000_100


def config(out: Path, **options: Any) -> RecordConfig:
    return RecordConfig(**{"expert": "geometric", "episodes": 1, "out": out, "seed": SEED, "max_frames": 40, **options})


@pytest.mark.parametrize("more", [{}, {"every_frame": True}, {"env": "udacity", "max_frames": 60}])
def test_a_watched_recording_is_the_same_and_its_ticks_tell_it(tmp_path: Path, more: dict[str, Any]) -> None:
    ticks: list[Tick] = []
    record_episodes(config(tmp_path / "alone", workers=1, **more))
    record_episodes(config(tmp_path / "watched", watch=True, **more), listeners=[ticks.append])
    alone, watched = (next((tmp_path / name).glob("*.parquet")).read_bytes() for name in ("alone", "watched"))
    assert alone == watched
    episode = Recording.open(tmp_path / "watched").load(0)
    assert [tick.t_s for tick in ticks] == episode.t_s.tolist()
    assert [tick.action.steering for tick in ticks] == pytest.approx(episode.steering.tolist())
    assert ticks[-1].done and ticks[-1].episode_return == pytest.approx(episode.episode_return)
    if episode.expert_steering is not None:
        told = [tick.expert.steering for tick in ticks if tick.expert is not None]
        assert told == pytest.approx(episode.expert_steering.tolist())


@pytest.mark.parametrize("env", ["carracing", "udacity"])
def test_a_person_drives_and_records_with_the_keyboard(tmp_path: Path, env: str) -> None:
    by_hand = {"env": env, "expert": "keyboard", "watch": True, "allow_control": True, "track": "lake"}
    control, ticks = HumanControl(needs_person=True, silence_s=30), []
    asked = config(tmp_path / "r", max_frames=100, **by_hand)
    recording = threading.Thread(
        target=record_episodes, args=(asked,), kwargs={"listeners": [ticks.append], "control": control}
    )
    recording.start()
    control.acquire(1)
    while recording.is_alive():
        control.set_keys(1, ["up"] if len(ticks) < 15 else ["up", "right"])
        time.sleep(0.02)
    episode = Recording.open(tmp_path / "r").load(0)
    assert (episode.source, episode.driver, len(episode)) == (env, "keyboard", 25)
    assert all(tick.human for tick in ticks)
    assert episode.speed_mps[0] < 0.5 < episode.speed_mps[14]
    assert not episode.steering[:15].any() and episode.steering[20:].max() == 1
    if env == "carracing":
        assert np.array_equal(episode.choice, episode.expert_choice) and set(episode.choice) == {1, 3}
    else:
        assert episode.frames[0][:2] == b"\xff\xd8" and np.array_equal(episode.label, episode.steering)
        assert 0 < episode.steering[16] < 1, "a wheel turns by degrees"


def test_a_person_needs_the_page_and_says_so_in_full(tmp_path: Path) -> None:
    for options in (
        {"expert": "keyboard"},
        {"allow_control": True, "watch": True},
        {"expert": "keyboard", "watch": True},
    ):
        with pytest.raises(UserError, match="--expert keyboard, --watch and --allow-control"):
            config(tmp_path, **options)
    by_hand = RecordConfig(env="udacity", expert="keyboard", watch=True, allow_control=True)
    assert by_hand.out == Path("recordings/udacity-keyboard")
