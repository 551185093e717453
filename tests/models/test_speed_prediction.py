"""A network that has to tell the speed, too, while it learns."""

import json
from pathlib import Path

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.recording import Recording
from nacdrive.models import Policy, load_policy
from nacdrive.models.config import PolicyConfig
from nacdrive.models.speed_prediction import SpeedPrediction
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import train_policy

SPEEDS = torch.tensor([[0.0, 20.0, 40.0, torch.nan], [60.0, 80.0, 100.0, 7.0]])
PADDING = torch.tensor([[False, False, False, False], [False, False, True, True]])


@pytest.fixture
def learner() -> SpeedPrediction:
    torch.manual_seed(0)
    config = PolicyConfig("carracing", "mha", ((0, 0, 0), (0, 1, 0)), window=2, projection=8, d_model=8, num_heads=2)
    return SpeedPrediction(Policy.new(config).network, SPEEDS, 0.5).eval()


def test_decisions_are_those_of_the_network_alone(learner: SpeedPrediction) -> None:
    frames = torch.randint(0, 256, (2, 4, 96, 96, 3), dtype=torch.uint8)
    torch.testing.assert_close(learner(frames, None, PADDING), learner.network(frames, None, PADDING))


def test_the_error_is_of_the_speeds_that_are_known(learner: SpeedPrediction) -> None:
    frames = torch.randint(0, 256, (2, 4, 96, 96, 3), dtype=torch.uint8)
    learner(frames, None, PADDING)
    known = SPEEDS[~SPEEDS.isnan()]
    errors = []
    for b in range(2):
        for i in range(4):
            if not PADDING[b, i] and not SPEEDS[b, i].isnan():
                given = learner.speed(learner.network.features(frames[b, i : i + 1]))[0, 0] * known.std(correction=0)
                errors.append(((given + known.mean() - SPEEDS[b, i]) / known.std(correction=0)) ** 2)
    assert len(errors) == 5
    batch = {"padding": PADDING, "speed": SPEEDS}
    torch.testing.assert_close(learner.penalty(batch), 0.5 * torch.stack(errors).mean())
    assert learner.penalty({**batch, "speed": SPEEDS * torch.nan}) == 0


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("speed") / "recording"
    record_episodes(RecordConfig(expert="geometric", episodes=2, max_frames=240, workers=1, out=out))
    return out


def config_of(recording: Path, out: Path, weight: float) -> TrainConfig:
    return TrainConfig(
        data=(recording,), out=out, model="mha", window=2, epochs=12, batch_size=2, valid_share=0.0, average=0.0,
        augment=False, speed_weight=weight,
    )  # fmt: skip


def explained(file: Path, recording: Path) -> float:
    """Share of the variance of the speed that a linear map of a frame's features explains, in the frames learnt."""
    network, data = load_policy(file).network, Recording.open(recording)
    episodes = [data.load(i) for i in range(len(data))]
    x = torch.cat([network.features(torch.from_numpy(e.decoded())) for e in episodes]).detach().double()
    y = torch.cat([torch.tensor(e.speed_mps) for e in episodes]).double()
    x, y = torch.cat([x, torch.ones(len(x), 1)], dim=1), y - y.mean()
    # Few directions: with as many as frames, anything can be explained.
    few = torch.linalg.svd(x, full_matrices=False).U[:, :5]
    return float((few.T @ y).square().sum() / y.square().sum())


def test_features_tell_the_speed_and_the_file_is_that_of_any_policy(recording: Path, tmp_path: Path) -> None:
    plain = train_policy(config_of(recording, tmp_path / "plain", 0.0))
    taught = train_policy(config_of(recording, tmp_path / "taught", 1.0))
    assert explained(taught, recording) > explained(plain, recording) + 0.1
    logged = [
        [json.loads(line).get("train_penalty") for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("plain", "taught")
    ]
    assert set(logged[0]) == {None} and logged[1][-1] < 0.8 * logged[1][0] < 2
    a, b = load_policy(plain), load_policy(taught)
    assert a.network.state_dict().keys() == b.network.state_dict().keys()
    assert a.config == b.config
    assert (a.meta["config"]["speed_weight"], b.meta["config"]["speed_weight"]) == (0.0, 1.0)


def test_recordings_without_speed_are_refused(recording: Path, tmp_path: Path) -> None:
    data = Recording.open(recording)
    with Recording.append_to(tmp_path / "blind", source="carracing", driver="geometric") as out:
        episode: Episode = data.load(0)
        for i in range(20):
            out.append({"frame": episode.decoded()[i], "t_s": float(episode.t_s[i]), "choice": int(episode.choice[i])})
        out.end_episode()
    with pytest.raises(UserError, match="--speed-weight is for recordings that hold the car's speed"):
        train_policy(config_of(tmp_path / "blind", tmp_path / "out", 1.0))
    assert not (tmp_path / "out").exists()
