from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.datasets import par
from nacdrive.datasets.par import ACTIVITIES, TAGS, read_par

TENTH = Path(__file__).resolve().parents[3] / "shared/data/par_person_a.txt.xz"
PUBLISHED = "A01,020-000-033-111,633790226057226795,27.05.2009 14:03:25:723,4.2925,2.0738,1.3665,walking"


def row(name: str = "A01", tag: int = 0, ticks: int = 633_790_226_057_226_795, activity: str = "walking") -> str:
    return f"{name},{list(TAGS)[tag]},{ticks},27.05.2009 14:03:25:723,1.5,2.5,{tag},{activity}"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_recordings_come_by_name_and_time(tmp_path: Path, newline: str) -> None:
    first = 633_790_226_057_226_795
    lines = [
        PUBLISHED,
        row(tag=3, ticks=first + 12_345_678, activity="standing up from sitting on the ground"),
        row(tag=1, ticks=first + 270_000, activity="falling"),
        row("B02", tag=2, ticks=first + 10**10, activity="lying down"),
    ]
    path = tmp_path / "mine.txt"
    path.write_text(newline.join(lines) + newline, newline="")
    with pytest.warns(UserWarning, match="time goes back"):
        a, b = read_par(path)
    assert (a.name, a.person, len(a), b.name, b.person, len(b)) == ("A01", "A", 3, "B02", "B", 1)
    np.testing.assert_allclose(a.t_s, [0, 0.027, 1.2345678], atol=1e-9)
    assert a.tag.tolist() == [2, 1, 3] and b.tag.tolist() == [2]
    np.testing.assert_allclose(a.xyz[0], [4.2925, 2.0738, 1.3665])
    assert [ACTIVITIES[i] for i in a.activity] == ["walking", "falling", "standing up from sitting on the ground"]
    assert b.t_s.tolist() == [0], "each recording has its own zero"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (row(activity="wallking"), r"unknown activity in .*mine.txt line 2 'wallking': did you mean 'walking'\?"),
        (row().replace("010-000-024-033", "010-000-024-034"), "unknown tag in .* line 2 '010-000-024-034'"),
        (row() + ",7", "line 2 has 9 columns where 8 belong"),
        (row().replace(",1.5", ""), "line 2 has 7 columns where 8 belong"),
        (row().replace("1.5", "nan"), "line 2 holds no finite time and position"),
        (row().replace("1.5", ""), "line 2 holds no finite time and position"),
        (row().replace("633790226057226795", "noon"), "line 2 holds no finite time and position"),
        (row().replace("633790226057226795", ""), "line 2 holds no finite time and position"),
        (row("01"), "line 2 names the recording '01' where a name such as A01 belongs"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("\n".join([PUBLISHED, line, PUBLISHED]))
    with pytest.raises(UserError, match=why):
        read_par(path)


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ConfLongDemo_JSI.txt does not exist: 'nacdrive data fetch par'"):
        read_par(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="holds no readings"):
        read_par(tmp_path / "empty.txt")


def test_a_damaged_copy_of_the_official_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / par.FILE_NAME
    path.write_text(PUBLISHED + "\n")
    monkeypatch.setattr(par, "SIZE", path.stat().st_size)
    with pytest.raises(UserError, match=r"damaged copy .* expected was 280a677ae0d673ec9a50ada480d8a529"):
        read_par(tmp_path)
    monkeypatch.setattr(par, "SIZE", 5)
    with pytest.warns(UserWarning, match="is not the official file"):
        assert len(read_par(tmp_path)) == 1


HEADER = "id, sequence_name, tag_indicator, timestamp, x_coordinate, y_coordinate, z_coordinate, activity"


def public(number: int, ticks: int, x: str = "1.5") -> str:
    return f"{number},A01,{next(iter(TAGS))},{ticks},{x},2.5,0,walking"


def test_a_public_copy_with_a_header_is_read_and_its_bad_line_named(tmp_path: Path) -> None:
    path = tmp_path / "tenth.txt"
    path.write_text("\n".join([HEADER, public(0, 100), public(1, 10_000_100)]))
    (recording,) = read_par(path)
    assert recording.name == "A01" and recording.t_s.tolist() == [0, 1]
    np.testing.assert_allclose(recording.xyz, [[1.5, 2.5, 0]] * 2)
    path.write_text("\n".join([HEADER, public(0, 100), public(1, 200, "nan")]))
    with pytest.raises(UserError, match=r"tenth.txt line 3 holds no finite time and position"):
        read_par(path)
    path.write_text("\n".join([HEADER, public(0, 100), public(1, 200) + ",7"]))
    with pytest.raises(UserError, match="line 3 has 9 columns where 8 belong"):
        read_par(path)


def test_times_that_go_back_are_sorted_with_a_word_of_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("\n".join([row(ticks=100), row("B01", ticks=50), row(ticks=300), row(ticks=200)]))
    with pytest.warns(UserWarning, match=r"mine.txt line 4: time goes back within A01 \(times: 1\): sorted"):
        recordings = read_par(path)
    np.testing.assert_allclose(recordings[0].t_s, [0, 1e-5, 2e-5])
    path.write_text("\n".join([HEADER, public(0, 300), public(1, 200)]))
    with pytest.warns(UserWarning, match="line 3: time goes back"):
        read_par(path)


@pytest.mark.skipif(not TENTH.is_file(), reason="PAR's first tenth is not on this machine")
def test_the_real_tenth_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tenth.txt"
    path.write_bytes(lzma.decompress(TENTH.read_bytes()))
    with pytest.warns(UserWarning, match="time goes back"):
        recordings = read_par(path)
    assert {r.name: len(r) for r in recordings} == {"A01": 5830, "A02": 5691, "A03": 4965}


def test_a_public_copy_has_its_columns_in_their_order(tmp_path: Path) -> None:
    path, line = tmp_path / "mine.txt", f"0,A01,{next(iter(TAGS))},633790226057226795,4.0,2.0,0.9,walking\n"
    path.write_text("\ufeffid,sequence,tag,ticks,x,y,z,activity\n" + line, encoding="utf-8")
    np.testing.assert_allclose(read_par(path)[0].xyz, [[4.0, 2.0, 0.9]], rtol=1e-6)
    path.write_text("id,sequence,tag,ticks,z,y,x,activity\n" + line)
    with pytest.raises(UserError, match="has the columns id,sequence,tag,ticks,z,y,x,activity: those that are read"):
        read_par(path)
