"""Practice with real simulators; episodes are cut short to be quick."""

from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.envs.carracing.env import make_carracing, to_action
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST
from nacdrive.rollout.dagger import LOST_AFTER, Practice, drive_together, practise


class Stubborn:
    """Always does the same; remembers what it was shown."""

    def __init__(self, choice: int) -> None:
        self.choice, self.seen = choice, 0

    def reset(self) -> None:
        self.seen = 0

    def step(self, frame: np.ndarray, t_s: float, speed_mps: float | None = None) -> Action:
        self.seen += 1
        return to_action(self.choice)

    def observe(self, frame: np.ndarray) -> Action:
        return self.step(frame, 0.0)

    def neurons(self) -> dict[str, np.ndarray]:
        return {}


def together(beta: float, max_frames: int = 120, pupil: int = 0, teacher: int = 3):
    world = make_carracing(max_frames=max_frames)
    rng = np.random.default_rng(0)
    return drive_together(
        world, Stubborn(pupil), lambda env: Stubborn(teacher), 3_500_000, beta, rng, source="carracing", name="pupil"
    )


def test_every_frame_bears_the_experts_label_whoever_drove() -> None:
    episode = together(0.5)
    assert set(episode.expert_choice.tolist()) == {3}
    assert set(episode.choice.tolist()) == {0, 3}
    assert 0 < episode.meta["expert_share"] < 1
    assert episode.driver == "pupil"


@pytest.mark.parametrize(("beta", "driver"), [(0.0, 0), (1.0, 3)])
def test_beta_says_who_drives(beta: float, driver: int) -> None:
    assert set(together(beta).choice.tolist()) == {driver}


def test_a_pupil_that_gets_nowhere_is_stopped() -> None:
    episode = together(0.0, max_frames=400)
    assert len(episode) <= LOST_AFTER + 2


def test_tracks_of_practice_are_never_those_of_judgement() -> None:
    tracks = [
        set(Practice(Path("p"), "ppo", round_, 20, 0.5, seed).tracks) for round_ in range(1, 9) for seed in range(6)
    ]
    assert all(len(track) == 20 for track in tracks)
    assert all(track in POLICY_RECORDING and track not in POLICY_TEST for some in tracks for track in some)
    assert len(set().union(*tracks)) == sum(map(len, tracks)), "two rounds drive the same track"


def test_practice_is_a_recording_and_goes_on_where_it_stopped(model_file: Path, tmp_path: Path) -> None:
    practice = Practice(model_file, "geometric", 1, 3, 0.5, seed=0, max_frames=40)
    driven = []
    practise(practice, tmp_path / "r", 2, driven.append)
    recording = Recording.open(tmp_path / "r", source="carracing")
    assert [info.seed for info in recording.episodes] == list(practice.tracks)
    assert len(driven) == 3
    before = {info.path.name: info.sha256 for info in recording.episodes}

    recording.episodes[1].path.unlink()
    again = []
    with pytest.warns(UserWarning, match="driven again"):
        practise(practice, tmp_path / "r", 1, again.append)
    assert [episode.seed for episode in again] == [practice.tracks[1]]
    assert {info.path.name: info.sha256 for info in Recording.open(tmp_path / "r").episodes} == before


def test_a_policy_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model file"):
        practise(Practice(tmp_path / "none.pt", "geometric", 1, 1, 0.5, 0), tmp_path / "r", 1)
