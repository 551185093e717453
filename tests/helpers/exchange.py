"""Small recordings of every kind, and what it means that two are the same."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nacdrive.datasets.episode import COLUMNS, OPTIONAL, PLACES, Episode
from nacdrive.datasets.images import encode_jpeg, encode_png
from nacdrive.datasets.recording import Recording, RecordingWriter

SAMPLE = Path(__file__).parents[2] / "recordings" / "carracing-sample"
HEADER = ("source", "fps", "expert", "recipe", "dropped", "license")


def drive(
    seed: int = 7,
    steps: int = 4,
    *,
    source: str = "udacity",
    size: tuple[int, int] = (12, 16),
    jpeg: bool = False,
    sides: bool = False,
    choices: int = 0,
    logits: bool = False,
    label: bool = False,
    pedal: bool = False,
    speed: bool = True,
    places: bool = False,
    ended: str = "time is up",
    driver: str = "geometric",
    salt: int = 0,
) -> Episode:
    """An episode of noise at uneven times."""
    noise = np.random.default_rng([abs(seed), steps, salt])
    encode = encode_jpeg if jpeg else encode_png

    def frames() -> list[bytes]:
        return [encode(noise.integers(0, 256, (*size, 3), dtype=np.uint8)) for _ in range(steps)]

    chosen = noise.integers(0, choices, steps) if choices else np.full(steps, -1)
    return Episode(
        frames=frames(),
        t_s=np.cumsum(noise.uniform(0.01, 0.2, steps)) - 0.01,
        choice=chosen,
        steering=noise.uniform(-1, 1, steps),
        throttle=noise.uniform(0, 1, steps),
        brake=noise.uniform(0, 1, steps),
        reward=noise.normal(size=steps) * 10.0 ** noise.integers(-30, 30),
        speed_mps=noise.uniform(0, 70, steps) if speed else np.full(steps, np.nan),
        expert_choice=noise.integers(0, choices, steps) if choices else np.full(steps, -1),
        expert_logits=noise.normal(size=(steps, choices)) if logits and choices else None,
        seed=seed,
        source=source,
        driver=driver,
        episode_return=float(noise.normal() * 900),
        meta={"ended": ended, "Straße": ["lake", None, 1.5], "policy": {"choice": [None] * steps}},
        expert_steering=noise.uniform(-1, 1, steps) if label else None,
        expert_pedal=noise.uniform(-1, 1, steps) if pedal else None,
        side_frames={"left": frames(), "right": frames()} if sides else {},
        **(
            {
                name: np.where(noise.random(steps) < 0.2, np.nan, noise.normal(size=steps))
                for name in (*PLACES[:3], "frame_t_s")
            }
            if places
            else {}
        ),
    )


def write(folder: Path, episodes: list[Episode], **options: Any) -> Path:
    """A recording of these episodes."""
    given = {"source": episodes[0].source, "fps": 12.5, "expert": "geometric", "recipe": {"beta": 1.0}, **options}
    writer = RecordingWriter(folder, **given)
    for episode in episodes:
        writer.add(episode)
    return folder


@st.composite
def recordings(draw: st.DrawFn, *, alike: bool) -> list[Episode]:
    """Episodes of a recording; ``alike``: with the same cameras."""
    common = {
        "size": draw(st.sampled_from([(12, 16), (33, 40)])),
        "source": draw(st.sampled_from(["carracing", "udacity", "gym:Other-v1"])),
        "choices": draw(st.sampled_from([0, 1, 5])),
        "jpeg": draw(st.booleans()),
    }
    sides = st.just(draw(st.booleans())) if alike else st.booleans()
    return [
        drive(
            draw(st.sampled_from([0, 1, 3_000_000, 2**40])),
            draw(st.integers(1, 4)),
            sides=draw(sides),
            logits=draw(st.booleans()),
            label=draw(st.booleans()),
            pedal=draw(st.booleans()),
            speed=draw(st.booleans()),
            places=draw(st.booleans()),
            ended=draw(st.sampled_from(["lap finished", "time is up", "interrupted"])),
            driver=draw(st.text(max_size=8)),
            salt=i,
            **common,
        )
        for i in range(draw(st.integers(1, 4)))
    ]


def assert_same_recording(one: Path, other: Path, *, frames: str = "pixels") -> None:
    """Both hold the same episodes in the same order, and say the same of themselves; ``frames``: pixels or bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a, b = Recording.open(one), Recording.open(other)
    assert {name: a.meta.get(name) for name in HEADER} == {name: b.meta.get(name) for name in HEADER}
    assert len(a) == len(b)
    for index in range(len(a)):
        assert_same_episode(a.load(index), b.load(index), frames=frames)


def assert_same_episode(a: Episode, b: Episode, *, frames: str) -> None:
    assert (a.seed, a.source, a.driver, a.episode_return, a.meta) == (
        b.seed,
        b.source,
        b.driver,
        b.episode_return,
        b.meta,
    )
    for name in (*COLUMNS, *OPTIONAL):
        mine, others = getattr(a, name), getattr(b, name)
        assert (mine is None) == (others is None), name
        if mine is not None:
            assert mine.dtype == others.dtype
            np.testing.assert_array_equal(mine, others, err_msg=name)
    assert a.side_frames.keys() == b.side_frames.keys()
    for camera in ("center", *a.side_frames):
        np.testing.assert_array_equal(a.decoded(camera), b.decoded(camera))
    if frames == "bytes":
        assert (a.frames, a.side_frames) == (b.frames, b.side_frames)
