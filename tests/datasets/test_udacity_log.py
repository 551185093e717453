"""Logs of the real simulator are read with all their quirks, written in its layout, and survive the way round."""

import subprocess
import sys
import warnings
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.cli.recordings import ExportConfig, ImportConfig, export, import_
from nacdrive.common.errors import UserError
from nacdrive.common.units import MPH_PER_MPS
from nacdrive.datasets.check import check_recording
from nacdrive.datasets.episode_file import from_parquet, to_parquet
from nacdrive.datasets.images import decode_image, encode_jpeg, encode_png
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.udacity_log import (
    LARGEST_STEP_MPH,
    disambiguate,
    goes_on,
    is_header,
    is_log,
    parse_row,
    read_log,
    read_numbers,
    stamp_of,
)
from nacdrive.datasets.udacity_log_convert import UdacityLogWriter, export_log, import_log, plain_number
from tests.helpers.udacity_logs import make_log, numbers, stamps

HEADER = "center,left,right,steering,throttle,brake,speed"
REAL = Path(__file__).parents[3] / "shared" / "data" / "udacity_track"


def read(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_log(folder)


def empty(folder):
    folder.mkdir()
    return folder


def readings(log):
    return np.array([[row.steering, row.throttle, row.brake, row.speed_mps * MPH_PER_MPS] for row in log.rows])


@pytest.mark.parametrize(
    "quirks",
    [
        {},
        {"prefix": "/home/x/IMG/"},
        {"prefix": "IMG/", "header": HEADER, "blank": " "},
        {"prefix": "D:\\a, b\\IMG\\"},
        {"end": "\r\n"},
        {"decimal": ","},
        {"decimal": ",", "header": HEADER, "blank": " "},
    ],
    ids=str,
)
def test_every_layout_gives_the_same_rows(tmp_path, quirks):
    log = read(make_log(tmp_path / "log", **quirks))
    np.testing.assert_allclose(readings(log), numbers(4), atol=1e-6)
    assert log.rows[2].left == tmp_path / "log" / "IMG" / f"left_{stamps(4)[2]}.jpg"
    assert log.gap_s == pytest.approx(0.07)


def test_comma_decimals_of_a_whole_drive_are_resolved(tmp_path):
    rng = np.random.default_rng(1)
    speed = np.abs(np.round(np.cumsum(rng.normal(0, 0.3, 300)) + 2, 1)) + 0.01 * (np.arange(300) % 2)
    steering = np.where(rng.random(300) < 0.5, 0, rng.integers(-20, 21, 300) / 20)
    throttle = np.where(rng.random(300) < 0.5, 1, rng.random(300))
    brake = np.where(rng.random(300) < 0.3, rng.random(300) * 1e-4, 0)
    truth = np.stack([steering, np.where(brake > 0, 0, throttle), brake, speed], axis=1)
    truth = np.array([[float(f"{v:.7G}") for v in row] for row in truth])
    rows = []
    for i, values in enumerate(truth):
        rows.append(parse_row("a.jpg,b.jpg,c.jpg," + ",".join(f"{v:.7G}".replace(".", ",") for v in values), i))
    assert any(len(row.readings) > 1 for row in rows)
    np.testing.assert_allclose(disambiguate(rows), truth, atol=1e-9)


def test_exponents_are_numbers():
    assert disambiguate([parse_row("a.jpg,b.jpg,c.jpg,7.9E-05,0,0,1E-06", 1)]) == [(7.9e-5, 0, 0, 1e-6)]
    assert disambiguate([parse_row("a.jpg,b.jpg,c.jpg,-7,9E-05,0,0,12,5", 1)]) == [(-7.9e-5, 0, 0, 12.5)]


def test_the_centre_camera_alone_is_a_row():
    assert parse_row("IMG/center_1.jpg,,,0.5,0,0,3", 1).images == ("center_1.jpg",)


@pytest.mark.parametrize(
    "line", ["", "a.jpg,b.jpg,c.jpg", "a.jpg,b.jpg,c.jpg,0,0,0", "a.jpg,b.jpg,c.jpg,2,0,0,1", "some text",
             "a.jpg,b.jpg,c.jpg,nan,0,0,1", "a.jpg,b.jpg,0,0,0,1", "a.jpg,b.jpg,c.jpg,x,0,0,1"]
)  # fmt: skip
def test_what_is_no_row_is_none(line):
    assert parse_row(line, 1) is None


def test_a_line_cut_short_and_lines_of_another_kind_are_left_out_and_told(tmp_path):
    folder = make_log(tmp_path / "log")
    path = folder / "driving_log.csv"
    text = path.read_text()
    path.write_text("remark\n" + text[:-6])
    with pytest.warns(UserWarning, match=r"last line is cut short; 1 lines are no rows .*\(line 1\).*with 3 rows"):
        log = read_log(folder)
    np.testing.assert_allclose(readings(log), numbers(4)[:3], atol=1e-6)


def test_missing_images_are_named_the_first_five_of_them(tmp_path):
    folder = make_log(tmp_path / "log", 8)
    for stamp in stamps(8)[:7]:
        (folder / "IMG" / f"left_{stamp}.jpg").unlink()
    with pytest.warns(UserWarning, match=rf"7 images are missing \(left_{stamps(1)[0]}.*and 2 more\).*with 1 rows"):
        assert len(read_log(folder).rows) == 1
    for image in (folder / "IMG").iterdir():
        image.unlink()
    with pytest.raises(UserError, match=r"no usable row: 24 images are missing .*Put the images into .*IMG"):
        read_log(folder)


def test_no_log_is_told_and_one_further_down_is_suggested(tmp_path):
    with pytest.raises(UserError, match=r"no driving_log\.csv in .*give the folder"):
        read_log(tmp_path)
    make_log(tmp_path / "data")
    with pytest.raises(UserError, match=rf"did you mean {tmp_path}/data\?"):
        read_log(tmp_path)
    assert read_log(tmp_path / "data" / "driving_log.csv").folder == tmp_path / "data"


def test_a_pause_or_a_clock_that_runs_back_begins_another_drive(tmp_path):
    folder = make_log(tmp_path / "log", 6)
    path = folder / "driving_log.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[3:], *lines[:3]]) + "\n")
    assert [len(drive) for drive in read_log(folder).drives()] == [3, 3]


def test_rows_that_somebody_shuffled_or_doubled_are_one_drive_again(tmp_path):
    folder = make_log(tmp_path / "log", 12)
    path = folder / "driving_log.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[::-2], *lines[::2], *lines[:3]]) + "\n")
    with pytest.warns(UserWarning, match=r"3 rows have the picture of a later one; the rows were not in the order of"):
        log = read_log(folder)
    assert [len(drive) for drive in log.drives()] == [12]
    np.testing.assert_allclose(readings(log), numbers(12), atol=1e-6)


def test_a_log_of_other_columns_is_told_which_there_are(tmp_path):
    path = make_log(tmp_path / "log") / "driving_log.csv"
    path.write_text("\n".join(line.rpartition(",")[0] for line in path.read_text().splitlines()) + "\n")
    with pytest.raises(UserError, match=r"A row is center, left, right, steering, throttle, brake, speed; left and"):
        read_log(path)


def test_images_whose_names_tell_no_time_are_taken_at_the_usual_pace(tmp_path):
    folder = make_log(tmp_path / "log")
    path = folder / "driving_log.csv"
    for i, stamp in enumerate(stamps(4)):
        for camera in ("center", "left", "right"):
            (folder / "IMG" / f"{camera}_{stamp}.jpg").rename(folder / "IMG" / f"{camera}{i}.jpg")
        path.write_text(path.read_text().replace(f"_{stamp}", str(i)))
    with pytest.warns(UserWarning, match="tell no time"):
        log = read_log(folder)
    assert log.gap_s == pytest.approx(1 / 15)
    assert len(log.drives()) == 1


def test_what_the_writer_wrote_is_read_again(tmp_path):
    image, taken = b"\xff\xd8 some jpeg", datetime(2026, 1, 2, 3, 4, 5, 678_000)
    with closing(UdacityLogWriter(empty(tmp_path / "log"))) as writer:
        writer.add((image, image, image), taken, steering=-0.25, throttle=7.9e-5, brake=0.0, speed_mps=10.0)
        writer.add((image, None, None), taken.replace(second=7), steering=1.0, throttle=0.0, brake=0.5, speed_mps=0.0)
    text = (tmp_path / "log" / "driving_log.csv").read_text()
    assert text.splitlines()[0].endswith("IMG/right_2026_01_02_03_04_05_678.jpg,-0.25,7.9E-05,0,22.36936")
    log = read(tmp_path / "log")
    np.testing.assert_allclose(readings(log), [[-0.25, 7.9e-5, 0, 22.36936], [1, 0, 0.5, 0]], atol=1e-5)
    assert (log.rows[1].left, log.rows[0].center.read_bytes()) == (None, image)


def test_a_row_that_was_cut_short_costs_that_row_alone(tmp_path):
    folder = empty(tmp_path / "log")
    with closing(UdacityLogWriter(folder)) as writer:
        writer.add((b"a", None, None), datetime(2026, 1, 1), steering=0.5, throttle=0, brake=0, speed_mps=1.0)
    with (folder / "driving_log.csv").open("a") as log:
        log.write("IMG/center_2026")
    with pytest.warns(UserWarning, match="the last line is cut short"):
        assert [row.steering for row in read_log(folder).rows] == [0.5]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of a process")
def test_a_log_that_cannot_be_written_to_its_end_is_not_there(tmp_path):
    folder = drive_of_own(tmp_path / "recording")
    command = 'ulimit -f 1; exec "$0" -m nacdrive recordings export --data recording --to udacity --out log'
    done = subprocess.run(["bash", "-c", command, sys.executable], cwd=folder.parent, capture_output=True, text=True)
    assert (done.returncode, "too large" in done.stderr, (tmp_path / "log").exists()) == (2, True, False), done.stderr


def test_a_log_survives_being_a_recording_byte_for_byte(tmp_path):
    folder = make_log(tmp_path / "log", 5)
    made = import_log(folder, tmp_path / "recording")
    assert (made.episodes, made.frames) == (1, 5)
    assert check_recording(tmp_path / "recording").problems == []
    recording = Recording.open(tmp_path / "recording", source="udacity")
    episode = recording.load(0)
    assert recording.meta["fps"] == pytest.approx(1 / 0.07, abs=1e-3)
    assert episode.decoded("left").shape == (5, 160, 320, 3)
    assert (episode.decoded("right")[0, 80, 160] > 150).tolist() == [False, False, True]
    np.testing.assert_array_equal(episode.label, episode.steering)
    export_log(tmp_path / "recording", tmp_path / "again")
    np.testing.assert_allclose(readings(read(tmp_path / "again")), numbers(5), rtol=1e-6)
    images = sorted(path.name for path in (folder / "IMG").iterdir())
    assert images == sorted(path.name for path in (tmp_path / "again" / "IMG").iterdir())
    assert all((folder / "IMG" / n).read_bytes() == (tmp_path / "again" / "IMG" / n).read_bytes() for n in images)


def test_side_cameras_and_the_experts_steering_are_columns_of_their_own(tmp_path):
    import_log(make_log(tmp_path / "log"), tmp_path / "recording")
    episode = Recording.open(tmp_path / "recording").load(0)
    labelled = type(episode)(**{**vars(episode), "expert_steering": np.linspace(-1, 1, 4)})
    again = from_parquet(to_parquet(labelled))
    assert again.side_frames == episode.side_frames
    np.testing.assert_allclose(again.label, np.linspace(-1, 1, 4), atol=1e-6)
    np.testing.assert_array_equal(again.steering, episode.steering)
    with pytest.raises(ValueError, match="left"):
        type(episode)(**{**vars(episode), "side_frames": {"left": episode.frames[:2]}})


def test_a_damaged_image_is_named(tmp_path):
    folder = make_log(tmp_path / "log")
    image = folder / "IMG" / f"right_{stamps(4)[1]}.jpg"
    image.write_bytes(image.read_bytes()[:300])
    with pytest.raises(UserError, match=rf"{image.name} is no readable image"):
        import_log(folder, tmp_path / "recording")


@pytest.mark.parametrize("camera", ["center", "right"])
def test_an_image_of_another_size_is_named(tmp_path, camera):
    folder = make_log(tmp_path / "log")
    image = folder / "IMG" / f"{camera}_{stamps(4)[2]}.jpg"
    image.write_bytes(encode_jpeg(np.zeros((64, 48, 3), np.uint8)))
    advice = r"\(it has 48 x 64 pixels, the drive's first one 320 x 160\): delete the file, and"
    with pytest.raises(UserError, match=rf"{image.name} is no readable image of its drive {advice}"):
        import_log(folder, tmp_path / "recording")
    assert not (tmp_path / "recording").exists()


def test_the_verbs_say_what_they_did(tmp_path, capsys):
    folder = make_log(tmp_path / "log")
    import_(ImportConfig(data=folder, out=tmp_path / "r"))
    export(ExportConfig(data=tmp_path / "r", out=tmp_path / "back"))
    printed = capsys.readouterr().out
    assert "1 drives, 4 frames" in printed
    assert "driving_log.csv with 4 rows of 1 drives" in printed


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data/udacity_track")
def test_the_real_log_is_read_whole():
    log = read(REAL)
    assert len(log.rows) == 1800
    assert len(log.drives()) == 1
    assert log.gap_s == pytest.approx(0.071, abs=1e-3)
    values = readings(log)
    assert (values[:, 0] == 0).mean() == pytest.approx(0.703, abs=1e-3)
    assert values[:, 3].max() == pytest.approx(30.65264, abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (["-1", "0", "0", "0"], [(-1, 0, 0, 0)]),
        (["1", "1", "1", "250"], [(1, 1, 1, 250)]),
        (["-1.01", "0", "0", "0"], []),
        (["0", "1.01", "0", "0"], []),
        (["0", "0", "-0.01", "0"], []),
        (["0", "0", "0", "250.1"], []),
        (["0", "0", "nan", "0"], []),
        (["0", "0", "0"], []),
        (["0", "0", "0", "9/5"], [(0, 0, 0, 9.5)]),
        (["0", "0", "0", "9\u066b5"], [(0, 0, 0, 9.5)]),
        # Five fields: any of the four numbers may have a fraction, which never ends in 0.
        (["0", "5", "0", "0", "7"], [(0.5, 0, 0, 7)]),
        (["-0", "5", "1", "0", "7"], [(-0.5, 1, 0, 7)]),
        (["0", "0", "0", "9", "25"], [(0, 0, 0.9, 25), (0, 0, 0, 9.25)]),
        (["0", "0", "0", "9", "50"], [(0, 0, 0.9, 50)]),
        (["0", "0", "0", "09", "5"], [(0, 0, 0.09, 5)]),
        (["0", "1", "0", "2", "0", "3", "9", "4"], [(0.1, 0.2, 0.3, 9.4)]),
        (["0", "1", "0", "2", "0", "3", "9", "4", "1"], []),
        (["0", "0", "7", "9E-05", "12", "5"], [(0, 0.7, 9e-05, 12.5), (0, 0, 7.9e-05, 12.5)]),
        (["2E-05", "0", "0", "12", "5"], [(2e-05, 0, 0.12, 5), (2e-05, 0, 0, 12.5)]),
    ],
)
def test_numbers_are_read_in_every_way_that_is_within_the_ranges(fields, found):
    assert read_numbers(fields) == found


def test_of_several_readings_the_likeliest_is_taken():
    def row(line, *readings):
        return parse_row("a.jpg," + ",".join(["0", "0", "0", "1"]), line).__class__(line, ("a.jpg",), readings)

    sure, pedals, whole = (0.0, 0.0, 0.0, 9.5), (0.0, 0.5, 0.5, 9.5), (0.0, 0.0, 0.0, 9.0)
    # Never both pedals, hardly ever a whole speed but 0, and then the speed nearest to the one before.
    assert (
        disambiguate([row(1, pedals, sure)]) == [sure]
        and disambiguate([row(1, whole, (0.0, 0.0, 0.0, 3.5))])[0][3] == 3.5
    )
    assert disambiguate([row(1, (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.5))])[0][3] == 0.0
    near, far = (0.1, 0.0, 0.0, 10.5), (0.2, 0.0, 0.0, 2.5)
    assert disambiguate([row(1, far, near), row(2, sure)]) == [near, sure], "the first row that is sure tells the speed"
    # 10.6 follows 10.5 more closely than 8.6 does, though 8.6 is nearer to the 9.5 before that.
    assert (
        disambiguate([row(1, sure), row(2, near, far), row(3, (0.0, 0.0, 0.0, 8.6), (0.0, 0.0, 0.0, 10.6))])[2][3]
        == 10.6
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("center_2018_07_16_17_11_43_382.jpg", datetime(2018, 7, 16, 17, 11, 43, 382000)),
        ("center_1970_01_01_00_00_00_000.jpg", datetime(1970, 1, 1)),
        ("center_2199_12_31_23_59_59_999.jpg", datetime(2199, 12, 31, 23, 59, 59, 999000)),
        # Years of other calendars: months of 31 days, of which there may be 13.
        ("center_1397_04_25_17_11_43_382.jpg", datetime(1397, 4, 28, 17, 11, 43, 382000)),
        ("center_1397_02_31_00_00_00_000.jpg", datetime(1397, 3, 3)),
        ("center_2561_13_01_00_00_00_000.jpg", datetime(2562, 1, 8)),
        ("center_1397_14_01_00_00_00_000.jpg", None),
        ("center_1397_01_32_00_00_00_000.jpg", None),
        ("center_1397_00_01_00_00_00_000.jpg", None),
        ("center_2018_02_30_00_00_00_000.jpg", None),
        ("center_2200_02_30_00_00_00_000.jpg", datetime(2200, 3, 2)),
        ("center.jpg", None),
    ],
)
def test_the_name_of_an_image_tells_its_time(name, found):
    assert stamp_of(name) == found


def test_a_header_and_a_log_are_known(tmp_path):
    assert all(map(is_header, ("center,left", "Centre", '"center",x', " center ,x"))) and not is_header("centers,x")
    folder = make_log(tmp_path / "log")
    assert is_log(folder) and is_log(folder / "driving_log.csv") and not is_log(tmp_path)


@pytest.mark.parametrize(("gap_ms", "drives"), [(1000, 1), (1001, 4), (70, 1)])
def test_a_pause_of_more_than_a_second_begins_another_drive(tmp_path, gap_ms, drives):
    folder = make_log(tmp_path / "log")
    text = (folder / "driving_log.csv").read_text()
    for before, after in zip(stamps(4), stamps(4, gap_ms), strict=True):
        text = text.replace(before, after)
        for camera in ("center", "left", "right"):
            path = folder / "IMG" / f"{camera}_{before}.jpg"
            path.rename(folder / "IMG" / f"{camera}_{after}.jpg")
    (folder / "driving_log.csv").write_text(text)
    log = read(folder)
    assert len(log.drives()) == drives
    assert log.gap_s == pytest.approx(gap_ms / 1000 if drives == 1 else 1 / 15)


@pytest.mark.parametrize(("change", "rows"), [(LARGEST_STEP_MPH, 4), (LARGEST_STEP_MPH + 0.1, 3)])
def test_a_last_line_without_its_end_goes_on_where_its_speed_does(tmp_path, change, rows):
    values = numbers(4)
    values[:, 3] = 10.0
    values[3, 3] += change
    folder = make_log(tmp_path / "log", rows=values)
    path = folder / "driving_log.csv"
    path.write_text(path.read_text().rstrip("\n"))
    if rows == 4:
        assert len(read(folder).rows) == 4
    else:
        with pytest.warns(UserWarning, match=r"the last line is cut short\. Going on with 3 rows"):
            assert len(read_log(folder).rows) == 3


def test_one_line_alone_goes_on_from_nothing():
    assert not goes_on(["a,b"], {1: None}) and not goes_on(["a,b", "a,b"], {1: None, 2: None})


@pytest.mark.parametrize(("bad", "said"), [(5, "line 5, 6, 7, 8, 9"), (6, "line 5, 6, 7, 8, 9 and 1 more")])
def test_lines_of_another_kind_are_counted_and_the_first_five_named(tmp_path, bad, said):
    folder = make_log(tmp_path / "log")
    path = folder / "driving_log.csv"
    path.write_text(path.read_text() + "hello\n" * bad)
    with pytest.warns(UserWarning, match=rf"{bad} lines are no rows of a driving log \({said}\)"):
        assert len(read_log(folder).rows) == 4


def test_empty_columns_behind_a_row_are_none(tmp_path):
    folder = make_log(tmp_path / "log")
    path = folder / "driving_log.csv"
    rows = readings(read_log(folder))
    for more in (",", ",,", ', "" ,'):
        path.write_text("".join(f"{line}{more}\n" for line in path.read_text().splitlines()))
        np.testing.assert_array_equal(readings(read(folder)), rows)


def test_values_beyond_their_ranges_are_counted_apart(tmp_path):
    values = numbers(6)
    values[2:4, 0], values[5, 3] = 25.0, -1.0
    folder = make_log(tmp_path / "log", 6, rows=values)
    path = folder / "driving_log.csv"
    path.write_text("remark\n" + path.read_text())
    text = r"1 lines are no rows .* \(line 1\); 3 rows have a value beyond its range \(line 4, 5, 7\): steering is -1"
    with pytest.warns(UserWarning, match=text):
        assert len(read_log(folder).rows) == 3
    path.write_text("".join(f"a.jpg,{angle},0,0,3\n" for angle in (12, -25)))
    with pytest.raises(
        UserError, match=r"2 rows have a value beyond its range .line 1, 2.: steering is -1 .. 1, throttle"
    ):
        read_log(folder)


def test_rows_without_side_pictures_that_cost_a_drive_its_own_are_counted(tmp_path):
    folder = make_log(tmp_path / "log", 6)
    path = folder / "driving_log.csv"
    lines = path.read_text().splitlines()
    lines[2] = ",".join([lines[2].split(",")[0], "", "", *lines[2].split(",")[3:]])
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="1 rows have no side pictures, so their drive is taken without"):
        import_log(folder, tmp_path / "recording")
    recording = Recording.open(tmp_path / "recording")
    assert recording.load(0).side_frames == {} and "no side pictures" in recording.meta["recipe"]["left_out"][0]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (-0.0, "0"), (1.0, "1"), (-0.37448492, "-0.3744849"), (7.9e-05, "7.9E-05")]
)
def test_numbers_are_written_as_dotnet_writes_them(value, text):
    assert plain_number(value) == text


def test_rows_are_written_with_their_pictures_and_miles_per_hour(tmp_path):
    taken = datetime(2020, 1, 2, 3, 4, 5, 67_999)
    with closing(UdacityLogWriter(empty(tmp_path / "log"))) as writer:
        writer.add((b"c", None, b"r"), taken, steering=-0.5, throttle=0.25, brake=0.0, speed_mps=10.0)
    line = (tmp_path / "log" / "driving_log.csv").read_text()
    stamp = "2020_01_02_03_04_05_067"
    assert line == f"IMG/center_{stamp}.jpg,,IMG/right_{stamp}.jpg,-0.5,0.25,0,22.36936\n"
    assert sorted(path.name for path in (tmp_path / "log" / "IMG").iterdir()) == [
        f"center_{stamp}.jpg",
        f"right_{stamp}.jpg",
    ]


def test_an_import_says_what_it_knows_and_nothing_else(tmp_path):
    told = []
    made = import_log(make_log(tmp_path / "log"), tmp_path / "r", progress=told.append)
    assert (made.episodes, made.frames, told) == (1, 4, [4])
    recording = Recording.open(tmp_path / "r")
    episode = recording.load(0)
    assert recording.meta["fps"] == pytest.approx(14.286) and recording.meta["expert"] == "log"
    assert recording.meta["recipe"] == {"imported": "log", "left_out": []}
    assert episode.t_s.tolist() == [0.0, 0.07, 0.14, 0.21]
    assert (episode.choice == -1).all() and (episode.expert_choice == -1).all() and not episode.reward.any()
    assert (episode.seed, episode.driver, episode.episode_return, episode.expert_logits) == (0, "log", 0.0, None)
    assert episode.meta == {"began": "2018-07-16T17:11:43.382000"} and set(episode.side_frames) == {"left", "right"}


def test_drives_of_unknown_days_are_an_hour_apart(tmp_path):
    from tests.helpers.exchange import drive, write

    folder = write(tmp_path / "r", [drive(1, 2), drive(2, 2)])
    told = []
    made = export_log(folder, tmp_path / "log", progress=told.append)
    assert (made.episodes, made.frames, told) == (2, 4, [2, 4])
    lines = (tmp_path / "log" / "driving_log.csv").read_text().splitlines()
    gap_ms = round(1000 * float(drive(1, 2).t_s[1] - drive(1, 2).t_s[0]))
    assert lines[0].startswith("IMG/center_2000_01_01_00_00_00_000.jpg,,,")
    assert lines[1].startswith(f"IMG/center_2000_01_01_00_00_00_{gap_ms:03d}.jpg,,,")
    assert lines[2].startswith("IMG/center_2000_01_01_01_00_00_")


def drive_of_own(folder: Path, **meta: Any) -> Path:
    with Recording.append_to(folder, source="udacity") as episode:
        for i in range(12):
            episode.append({"frame": np.zeros((160, 320, 3), np.uint8), "t_s": i / 10, "steering": 0.1})
        episode.end_episode(**meta)
    return folder


def test_a_log_of_unknown_speeds_can_be_read(tmp_path: Path) -> None:
    folder = drive_of_own(tmp_path / "recording")
    with pytest.warns(UserWarning, match="the speed is unknown in 12 of 12 frames: it is 0 in "):
        export_log(folder, tmp_path / "log")
    assert [row.speed_mps for row in read_log(tmp_path / "log").rows] == [0.0] * 12


@pytest.mark.parametrize("began", ["yesterday", 7])
def test_a_beginning_that_is_no_time_is_refused_before_a_log_is_written(tmp_path: Path, began: Any) -> None:
    folder = drive_of_own(tmp_path / "recording", began=began)
    with pytest.raises(UserError, match=f"episode 0 began at '{began}', which is no time"):
        export_log(folder, tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_two_drives_of_one_time_do_not_overwrite_each_others_pictures(tmp_path: Path) -> None:
    for _ in range(2):
        drive_of_own(tmp_path / "recording", began="1970-01-01T00:00:00")
    with pytest.warns(UserWarning, match="the speed is unknown"):
        export_log(tmp_path / "recording", tmp_path / "log")
    assert len(list((tmp_path / "log/IMG").iterdir())) == 24 and len(read_log(tmp_path / "log").drives()) == 2


def test_two_drives_of_overlapping_times_do_not_either(tmp_path: Path) -> None:
    for second in (0, 1):
        drive_of_own(tmp_path / "recording", began=f"1970-01-01T00:00:0{second}")
    with pytest.warns(UserWarning, match="the speed is unknown"):
        export_log(tmp_path / "recording", tmp_path / "log")
    assert len(list((tmp_path / "log/IMG").iterdir())) == 24 and len(read_log(tmp_path / "log").drives()) == 2


def test_drives_whose_times_begin_anywhere_or_last_for_hours_do_not_either(tmp_path: Path) -> None:
    for begin, last in ((3600.0, 0.4), (0.0, 0.4), (1.7e9, 7000.0), (1.7e9 - 3600, 0.4)):
        frames = [encode_png(np.full((16, 32, 3), int(begin) % 251 + i, np.uint8)) for i in range(5)]
        times = begin + np.array([0, 0.1, 0.2, 0.3, last])
        Recording.from_arrays(frames, times, folder=tmp_path / "r", source="udacity", steering=np.zeros(5))
    with pytest.warns(UserWarning, match="the speed is unknown"):
        export_log(tmp_path / "r", tmp_path / "log")
    assert len(list((tmp_path / "log/IMG").iterdir())) == 20
    rows = read_log(tmp_path / "log").rows
    recording = Recording.open(tmp_path / "r")
    for k in range(4):
        mine = rows[5 * k : 5 * k + 5]
        shown = [round(float(decode_image(row.center.read_bytes()).mean())) for row in mine]
        wanted = [round(float(frame.mean())) for frame in recording.load(k).decoded()]
        np.testing.assert_allclose(shown, wanted, atol=1)


def test_two_frames_of_one_millisecond_are_refused(tmp_path: Path) -> None:
    frames = np.zeros((3, 16, 32, 3), np.uint8)
    times = [0.0, 0.1, 0.1001]
    Recording.from_arrays(frames, times, folder=tmp_path / "r", source="udacity", steering=np.zeros(3))
    with pytest.raises(
        UserError, match=r"two frames were taken at 2000_01_01_00_00_00_100, by which .*another format\.$"
    ):
        export_log(tmp_path / "r", tmp_path / "log")
    assert not (tmp_path / "log/driving_log.csv").exists()


def test_beginnings_with_and_without_a_zone_stand_beside_each_other(tmp_path: Path) -> None:
    for began in ("2026-11-29T12:00:00+00:00", "2026-11-29T13:00:00"):
        drive_of_own(tmp_path / "recording", began=began)
    with pytest.warns(UserWarning, match="the speed is unknown"):
        export_log(tmp_path / "recording", tmp_path / "log")
    assert (tmp_path / "log/IMG/center_2026_11_29_12_00_00_000.jpg").is_file()
