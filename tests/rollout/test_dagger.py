"""DAgger with real simulators; episodes are cut short to be quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST
from nacdrive.models import PolicyConfig, save_policy
from nacdrive.rollout.dagger import BRAKED_S, LED_AT_S, LED_S, LOST_AFTER, DaggerRound, MixtureWorker, collect
from nacdrive.rollout.drive import Drive
from tests.helpers.udacity_policy import udacity_policy


@pytest.fixture
def udacity_file(tmp_path: Path) -> Path:
    path = tmp_path / "udacity.pt"
    save_policy(udacity_policy(), path)
    return path


@pytest.fixture(params=["carracing", pytest.param("udacity-track", marks=pytest.mark.nightly)])
def round_(request: pytest.FixtureRequest, model_file: Path, udacity_file: Path) -> DaggerRound:
    """A short round in every built-in environment."""
    policy = model_file if request.param == "carracing" else udacity_file
    drive = Drive(request.param, policy, expert="geometric", options={"max_frames": 60}, beta=0.5)
    return DaggerRound(drive, 1, 2, seed=0)


DECISION_S = 4 / 50
"""Of CarRacing."""


class Stubborn:
    """A policy that always does the same."""

    name, repeat = "stubborn", 4

    def __init__(self, action: Action) -> None:
        self.action = action
        choices = () if action.choice is None else ((0.0, 0.0, 0.0),) * 5
        self.config = PolicyConfig(task="any", model="none", actions=choices)

    def reset(self) -> None:
        self.seen = 0

    def step(self, frame: Any, t_s: float, speed_mps: float | None = None) -> Action:
        self.seen += 1
        return self.action


def together(beta: float, max_frames: int = 120, env: str = "carracing", **more: Any) -> tuple[Episode, Stubborn]:
    """An episode of a policy that never steers (CarRacing), or always to the right (the tracks)."""
    camera = more.get("disturbance", CameraNoise())
    options = {"max_frames": max_frames}
    drive = Drive(env, Path("unused"), expert="geometric", options=options, camera=camera, beta=beta)
    policy: Any = Stubborn(Action(1.0, 0.0, 0.0, None if env == "udacity-track" else 0))
    drawn = {"vary_camera": more.get("vary", False), "bad_starts": more.get("bad_starts", 0.0)}
    worker = MixtureWorker(DaggerRound(drive, 1, 1, seed=0, **drawn), policy)
    return worker.drive(more.get("seed", 3_500_000)), policy


def test_every_frame_bears_the_experts_label_whoever_drove() -> None:
    episode, _ = together(0.5)
    by_policy = episode.choice == 0
    assert 0 < episode.meta["expert_share"] < 1
    assert 0 < by_policy.sum() < len(episode)
    assert (episode.expert_choice >= 0).all() and (episode.expert_choice == 3).any()
    np.testing.assert_array_equal(episode.choice[~by_policy], episode.expert_choice[~by_policy])
    assert episode.driver == "stubborn"


@pytest.mark.parametrize(("beta", "own"), [(0.0, True), (1.0, False)])
def test_beta_says_who_drives(beta: float, own: bool) -> None:
    episode, policy = together(beta, 60)
    assert set(episode.choice) == {0} if own else (episode.choice == episode.expert_choice).all()
    assert policy.seen == len(episode), "it is asked at every frame, so that it keeps its memory"


def test_a_policy_that_gets_nowhere_is_stopped() -> None:
    episode, _ = together(0.0, max_frames=400)
    assert len(episode) <= LOST_AFTER + 2


@pytest.mark.nightly
def test_every_second_drive_is_seen_through_the_worse_camera_and_labelled_by_the_true_one() -> None:
    black = CameraNoise(blackout=1.0)
    for seed, dark in ((3_500_000, False), (3_500_001, True)):
        clear, _ = together(0.0, seed=seed)
        seen, _ = together(0.0, seed=seed, disturbance=black)
        assert seen.decoded().any() != dark and ("camera" in seen.meta) == dark
        np.testing.assert_array_equal(seen.expert_choice, clear.expert_choice)
        np.testing.assert_array_equal(seen.choice, clear.choice)


def test_each_drive_may_draw_its_camera_by_its_seed() -> None:
    most = CameraNoise(noise=0.1, dropped=0.4)

    def drawn(seed: int) -> Any:
        return together(0.0, 40, seed=seed, disturbance=most, vary=True)[0].meta.get("camera")

    meta = {seed: drawn(seed) for seed in range(3_500_000, 3_500_006)}
    assert len(set(meta.values())) > 2  # nothing, one of them, both, and less of it
    again = next(seed for seed, camera in meta.items() if camera is not None)
    assert drawn(again) == meta[again]


def test_a_share_of_the_drives_begins_badly_and_has_the_time_to_come_back() -> None:
    usual, bad, same = (together(0.0, 400, bad_starts=share)[0] for share in (0.0, 1.0, 1.0))
    np.testing.assert_array_equal(bad.x_m, same.x_m)
    assert np.hypot(bad.x_m[0] - usual.x_m[0], bad.y_m[0] - usual.y_m[0]) > 1
    assert len(usual) <= LOST_AFTER + 2 < len(bad)
    braked = int((bad.choice == 4).sum())
    assert (
        0 < braked <= BRAKED_S / DECISION_S + 1
        and (bad.choice[:braked] == 4).all()
        and (bad.choice[braked:] == 0).all()
    )
    begins = {seed: together(0.0, 20, seed=seed, bad_starts=0.5)[0] for seed in range(3_500_000, 3_500_012)}
    good = [np.array_equal(one.x_m, together(0.0, 20, seed=seed)[0].x_m) for seed, one in begins.items()]
    assert 0 < sum(good) < len(good)


def test_a_bad_start_on_the_tracks_lies_within_what_a_drive_may_leave_the_road_by() -> None:
    for seed in range(3_500_000, 3_500_006):
        usual, bad = (together(0.0, 100, "udacity-track", bad_starts=share, seed=seed)[0] for share in (0.0, 1.0))
        # Beyond 4 m beside the road a drive ends at its first decision.
        assert len(usual) > 2 and len(bad) > 2 and bad.x_m[0] != usual.x_m[0]


def test_half_of_those_are_led_off_the_road_on_their_way() -> None:
    seen = [together(0.0, 600, bad_starts=1.0, seed=seed)[0] for seed in range(3_500_000, 3_500_008)]
    led = [one for one in seen if one.choice[0] == 0]
    assert 0 < len(led) < len(seen)
    for episode in led:
        changes = np.flatnonzero(np.diff(episode.choice))
        own, side, brake, after = episode.choice[np.r_[0, changes + 1]]
        assert (own, brake, after) == (0, 4, 0) and side in (1, 2)
        at_s, until_s, free_s = episode.t_s[changes + 1]
        assert LED_AT_S[0] <= at_s <= LED_AT_S[1] + DECISION_S
        assert LED_S[0] - DECISION_S <= until_s - at_s <= LED_S[1] + DECISION_S
        assert free_s - until_s <= BRAKED_S + DECISION_S


def test_frames_that_are_lost_are_not_learnt_from_and_the_others_have_their_own_times() -> None:
    whole, _ = together(0.0, seed=3_500_001)
    some, _ = together(0.0, seed=3_500_001, disturbance=CameraNoise(dropped=0.5))
    assert 2 < len(some) < len(whole) and some.meta["ended"] == whole.meta["ended"]
    assert some.episode_return == pytest.approx(whole.episode_return), "what a held action brings counts, too"
    kept = np.isin(whole.t_s, some.t_s)
    np.testing.assert_allclose(whole.t_s[kept], some.t_s)
    np.testing.assert_array_equal(whole.decoded()[kept], some.decoded())


def test_on_the_tracks_the_policy_steers_and_the_expert_labels() -> None:
    episode, policy = together(0.0, max_frames=1500, env="udacity-track", seed=8)
    assert policy.seen == len(episode)
    assert episode.meta["ended"] == "left the field"
    assert (episode.steering[-10:] > 0.5).all()
    assert (episode.label[-10:] < 0).all()
    control = SpeedController(episode.meta["top_speed_mps"])
    driven = zip(episode.speed_mps, episode.t_s, episode.steering, strict=True)
    pedals = [control.pedals(*(float(x) for x in row)) for row in driven]
    np.testing.assert_allclose(np.stack([episode.throttle, episode.brake], 1), pedals, atol=1e-5)
    assert episode.frames[0][:2] == b"\xff\xd8"


def test_tracks_of_dagger_are_never_those_of_judgement() -> None:
    tracks = [set(DaggerRound(Drive(), round_, 20, seed).tracks) for round_ in range(1, 9) for seed in range(6)]
    assert all(len(track) == 20 for track in tracks)
    assert all(track in POLICY_RECORDING and track not in POLICY_TEST for some in tracks for track in some)
    assert len(set().union(*tracks)) == sum(map(len, tracks)), "two rounds drive the same track"


def test_a_round_is_a_recording_and_goes_on_where_it_stopped(round_: DaggerRound, tmp_path: Path) -> None:
    out, source = tmp_path / "r", round_.drive.env_spec.source
    driven: list[Episode] = []
    collect(round_, out, 2, driven.append)
    recording = Recording.open(out, source=source)
    assert [info.seed for info in recording.episodes] == list(round_.tracks)
    assert len(driven) == 2
    if any(round_.drive.env_spec.tracks):
        assert {episode.meta["track"] for episode in driven} == set(round_.drive.env_spec.tracks)
        assert all(np.abs(episode.label - episode.steering).max() > 0 for episode in driven)
    before = {info.path.name: info.sha256 for info in recording.episodes}

    recording.episodes[1].path.unlink()
    again: list[Episode] = []
    with pytest.warns(UserWarning, match="driven again"):
        collect(round_, out, 1, again.append)
    assert [episode.seed for episode in again] == [round_.tracks[1]]
    assert {info.path.name: info.sha256 for info in Recording.open(out).episodes} == before
    collect(round_, out, 1, again.append)
    assert len(again) == 1


def test_a_policy_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model file"):
        drive = Drive(model=tmp_path / "none.pt", expert="geometric", beta=0.5)
        collect(DaggerRound(drive, 1, 1, 0), tmp_path / "r", 1)
    assert not (tmp_path / "r").exists()


def test_episodes_of_their_own_are_driven_from_their_starts_through_their_cameras() -> None:
    drive = Drive(expert="geometric", options={"max_frames": 60}, model=Path("unused"), beta=0.0)
    beside = Drive(
        expert="geometric", options={"max_frames": 60, "start_offset": 9.0}, model=Path("unused"),
        camera=CameraNoise(blackout=1.0),
    )  # fmt: skip
    policy: Any = Stubborn(Action(1.0, 0.0, 0.0, 0))
    round_ = DaggerRound(drive, 1, 1, seed=0, cases=((3_400_000, beside), (3_400_001, drive)))
    assert round_.tracks == [3_400_000, 3_400_001]
    worker = MixtureWorker(round_, policy)
    black, clear = (cast("Any", worker.drive(track)) for track in round_.tracks)
    assert not black.decoded().any() and clear.decoded().any() and (black.expert_choice >= 0).all()
    usual: Any = together(0.0, 60, seed=3_400_000)[0]
    assert np.hypot(black.x_m[0] - usual.x_m[0], black.y_m[0] - usual.y_m[0]) == pytest.approx(9, 0.1)
