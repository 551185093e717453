from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nacdrive.datasets.check import check_recording
from nacdrive.datasets.episode import COLUMNS, PLACES, Episode
from nacdrive.datasets.episode_file import METADATA_KEY, NotAnEpisodeError, from_parquet, to_parquet
from nacdrive.datasets.images import decode_frames, decode_image, encode_png
from nacdrive.viz.recorded import recorded_ticks
from tests.helpers.episodes import begin, make_episode
from tests.helpers.exchange import SAMPLE


def same(a: Episode, b: Episode) -> bool:
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(Episode))


@given(seed=st.integers(0, 2**31), steps=st.integers(1, 40), logits=st.booleans(), episode_return=st.floats(-1e4, 1e4))
def test_an_episode_comes_back_exactly_as_it_was_written(
    seed: int, steps: int, logits: bool, episode_return: float
) -> None:
    episode = replace(make_episode(seed, steps, logits=logits), episode_return=episode_return)
    assert same(from_parquet(to_parquet(episode)), episode)


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3))))
def test_png_is_lossless(frame: np.ndarray) -> None:
    assert np.array_equal(decode_image(encode_png(frame)), frame)


def with_places(steps: int = 6) -> Episode:
    """An episode that knows where the car was, but for one frame."""
    where = {name: np.linspace(k, k + 1, steps, dtype=np.float32) for k, name in enumerate(PLACES)}
    where["x_m"][2] = np.nan
    return replace(make_episode(steps=steps), **where)


def test_an_experts_pedal_comes_back_is_the_label_and_reaches_a_replay() -> None:
    episode = make_episode(steps=3)
    np.testing.assert_array_equal(episode.pedal_label, episode.throttle - episode.brake)
    labels = {"expert_steering": [0.1, -0.2, 0.3], "expert_pedal": [-0.25, 0.0, 0.5]}
    back = from_parquet(to_parquet(replace(episode, **{k: np.array(v, np.float32) for k, v in labels.items()})))
    np.testing.assert_array_equal(back.pedal_label, np.float32([-0.25, 0.0, 0.5]))
    advice = [tick.expert for tick in recorded_ticks(back)]
    assert [(a.throttle, a.brake) for a in advice if a] == [(0.0, 0.25), (0.0, 0.0), (0.5, 0.0)]


def test_places_come_back_and_reach_the_ticks_of_a_replay() -> None:
    episode = with_places()
    back = from_parquet(to_parquet(episode))
    for name in PLACES:
        np.testing.assert_array_equal(getattr(back, name), getattr(episode, name))
    ticks = recorded_ticks(back)
    assert [tick.x_m for tick in ticks] == [
        pytest.approx(0),
        pytest.approx(0.2),
        None,
        *map(pytest.approx, (0.6, 0.8, 1.0)),
    ]
    assert (ticks[5].y_m, ticks[5].heading_rad, ticks[5].progress) == (2, 3, 4)


def test_when_frames_were_taken_comes_back_exactly_and_reaches_a_replay() -> None:
    taken_s = np.array([0.0, 0.0, 1 / 3, 0.1, np.nan, 0.4])
    episode = replace(make_episode(), frame_t_s=taken_s)
    data = to_parquet(episode)
    back = from_parquet(data)
    assert back.frame_t_s is not None and back.frame_t_s.dtype == np.float64
    np.testing.assert_array_equal(back.frame_t_s, taken_s)
    np.testing.assert_array_equal(back.taken_s, [0.0, 0.0, 1 / 3, 0.1, 4 * 0.08, 0.4])
    assert back.is_new.tolist() == [True, False, True, False, False, True]  # 0.32 s is before 1/3 s
    assert "frame_t_s" in json.loads(pq.read_table(pa.BufferReader(data)).schema.metadata[METADATA_KEY])["units"]
    ticks = recorded_ticks(back)
    assert [tick.frame_t_s for tick in ticks] == [0.0, 0.0, 1 / 3, 0.1, None, 0.4]
    assert [tick.held for tick in ticks] == (~back.is_new).tolist()
    assert not any(tick.held for tick in recorded_ticks(back, teacher=back.driver)), "it sees the true frames"
    assert make_episode().is_new.all() and "frame_t_s" not in pq.read_table(pa.BufferReader(to_parquet(make_episode())))


def test_a_time_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="times"):
        replace(make_episode(), frame_t_s=np.full(6, np.inf))


@pytest.mark.nightly
def test_an_episode_that_knows_no_places_has_the_file_that_it_always_had() -> None:
    recorded = next(SAMPLE.glob("episode-*.parquet")).read_bytes()
    episode = from_parquet(recorded)
    assert episode.places == {}
    assert recorded_ticks(episode)[0].x_m is None
    assert to_parquet(episode) == recorded


@pytest.mark.parametrize("name", PLACES)
def test_places_are_named_with_their_units_and_need_not_be_all_there(name: str) -> None:
    data = to_parquet(replace(make_episode(), **{name: np.zeros(6)}))
    table = pq.read_table(pa.BufferReader(data))
    header = json.loads(table.schema.metadata[METADATA_KEY])
    assert [column for column in table.column_names if column in PLACES] == [name]
    assert name in header["units"]
    assert list(from_parquet(data).places) == [name]


def test_check_passes_places_and_names_one_that_cannot_be(tmp_path: Path) -> None:
    writer = begin(tmp_path / "r")
    writer.add(with_places())
    assert check_recording(tmp_path / "r").problems == []
    writer.add(replace(make_episode(8), y_m=np.full(6, np.inf)))
    (problem,) = check_recording(tmp_path / "r").problems
    assert problem.why == "has an infinite y_m"


def test_the_same_episode_gives_the_same_bytes() -> None:
    assert to_parquet(make_episode(5)) == to_parquet(make_episode(5))


@given(st.floats(0, 0.999))
def test_a_truncated_file_is_never_taken_for_an_episode(share: float) -> None:
    data = to_parquet(make_episode())
    with pytest.raises(NotAnEpisodeError):
        from_parquet(data[: int(share * len(data))])


def test_frames_are_stored_as_images_that_other_programs_recognise() -> None:
    table = pq.read_table(pa.BufferReader(to_parquet(make_episode())))
    assert table.schema.field("frame").type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["frame"] == {"_type": "Image"}
    assert list(features) == table.column_names
    with_more = pq.read_table(pa.BufferReader(to_parquet(with_places())))
    assert list(json.loads(with_more.schema.metadata[b"huggingface"])["info"]["features"]) == with_more.column_names


def test_png_bytes_are_not_compressed_again_and_numbers_are() -> None:
    group = pq.ParquetFile(pa.BufferReader(to_parquet(make_episode()))).metadata.row_group(0)
    codecs = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    assert codecs.pop("frame.bytes") == "UNCOMPRESSED"
    assert set(codecs.values()) == {"ZSTD"}


def test_one_file_alone_says_what_it_is() -> None:
    header = json.loads(pq.read_schema(pa.BufferReader(to_parquet(make_episode(7)))).metadata[METADATA_KEY])
    assert (header["source"], header["seed"], header["driver"], header["meta"]["repeat"]) == (
        "carracing",
        7,
        "geometric",
        4,
    )


def test_a_parquet_file_of_another_program_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1, 2]}), sink)
    with pytest.raises(NotAnEpisodeError, match="no recording of nacdrive"):
        from_parquet(sink.getvalue().to_pybytes())


def test_a_newer_schema_is_refused() -> None:
    table = pq.read_table(pa.BufferReader(to_parquet(make_episode())))
    header = json.loads(table.schema.metadata[METADATA_KEY]) | {"schema_version": 2}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(header).encode()}), sink)
    with pytest.raises(NotAnEpisodeError, match=r"newer nacdrive \(schema 2"):
        from_parquet(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("column", ["frame", *COLUMNS])
def test_a_missing_column_is_named(column: str) -> None:
    table = pq.read_table(pa.BufferReader(to_parquet(make_episode()))).drop_columns([column])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    with pytest.raises(NotAnEpisodeError, match=f"lacks a column.*{column}"):
        from_parquet(sink.getvalue().to_pybytes())


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="heading_rad"):
        replace(make_episode(), heading_rad=np.zeros(2))
    with pytest.raises(ValueError, match="throttle"):
        replace(make_episode(), throttle=np.zeros(2, dtype=np.float32))


def test_times_that_do_not_increase_are_refused() -> None:
    with pytest.raises(ValueError, match="increase"):
        replace(make_episode(), t_s=np.zeros(6))


def test_repr_prints_shapes_and_no_arrays() -> None:
    text = repr(make_episode(9))
    assert "seed 9" in text
    assert "[6, 5]" in text
    assert len(text) < 200


def test_frames_of_different_sizes_are_refused() -> None:
    small, large = np.zeros((4, 4, 3), np.uint8), np.zeros((5, 4, 3), np.uint8)
    with pytest.raises(ValueError, match="frame 1"):
        decode_frames([encode_png(small), encode_png(large)])


def test_bytes_that_are_no_image_are_refused() -> None:
    with pytest.raises(ValueError, match="not a readable image"):
        decode_image(b"no image")
    with pytest.raises(ValueError, match="not a readable image"):
        decode_image(encode_png(np.zeros((50, 50, 3), np.uint8))[:60])
