"""What a card is put together from."""

from pathlib import Path

import numpy as np
import pytest

from nacdrive.datasets.manifest import EpisodeInfo
from nacdrive.datasets.recording import Recording
from nacdrive.extras.exchange.card import Summary, episodes_table, front_matter, tag_of
from tests.helpers.exchange import drive, write


def summary_of(*episodes):
    summary = Summary()
    for episode in episodes:
        summary.add(EpisodeInfo.of(Path("x"), episode, b"12345"), episode)
    return summary


def test_a_summary_adds_up_what_the_episodes_hold():
    episodes = [drive(1, 3, choices=2, label=True, sides=True), drive(2, 5, speed=False, logits=False, driver="b")]
    summary = summary_of(*episodes)
    assert (summary.frames, summary.bytes, summary.labelled) == (8, 10, 3)
    assert summary.seconds == pytest.approx(sum(e.t_s[-1] - e.t_s[0] for e in episodes))
    assert summary.sizes == {"16 x 12 PNG": 3 * 3 + 5} and summary.drivers == {"geometric": 1, "b": 1}
    assert set(summary.columns) == {"left", "right", "expert_steering"}
    assert sum(summary.choices.values()) == 8 and summary.choices[-1] == 5
    steering = np.concatenate([e.steering for e in episodes]).astype(float)
    assert summary.range_of("steering") == pytest.approx(
        (steering.min(), steering.max(), steering.mean(), steering.std()), rel=1e-6
    )
    mps = episodes[0].speed_mps.astype(float)
    assert summary.range_of("speed_mps") == pytest.approx((mps.min(), mps.max(), mps.mean(), mps.std()), rel=1e-5)
    assert summary.range_of("nothing") is None and summary_of(drive(2, 5, speed=False)).range_of("speed_mps") is None
    assert summary_of(drive(1, 4, choices=3)).labelled == 4, "an expert's choice is a label"
    assert summary_of(drive(1, 2, jpeg=True)).sizes == {"16 x 12 JPEG": 2}


@pytest.mark.parametrize(
    ("frames", "size"),
    [(1, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (99_999, "10K<n<100K"), (10**5, "100K<n<1M"),
     (10**6, "1M<n<10M"), (10**7, "10M<n<100M"), (10**8, "100M<n<1B")],
)  # fmt: skip
def test_the_hubs_class_of_size(tmp_path, frames, size):
    front = front_matter(Recording.open(write(tmp_path / "recording", [drive(1, 3)])), Summary(frames=frames), None)
    assert front["size_categories"] == [size] and "license" not in front


def test_a_tag_has_letters_digits_and_hyphens():
    assert tag_of("gym:CarRacing-v3") == "gym-carracing-v3" and tag_of("(a)") == "a"


@pytest.mark.parametrize(("count", "rows", "more"), [(20, 20, ""), (21, 20, "... and 1 more, in `recording.json`.")])
def test_a_long_list_of_episodes_is_cut_short(count, rows, more):
    infos = [EpisodeInfo(Path(f"episode-{i}.parquet"), i, 3, 1.26, -0.04, "d", 1, "f" * 64) for i in range(count)]
    text = episodes_table(infos)
    assert text.count("| `episode-") == rows and more in text and ("more, in" in text) == bool(more)
    assert "| `episode-0.parquet` | 0 | 3 | 1.3 | -0.0 | `ffffffffffffffff` |" in text
