from __future__ import annotations

from pathlib import Path

import pytest

from nacdrive.cli.main import dispatch, format_warning
from nacdrive.common.errors import UserError
from nacdrive.common.paths import PACKAGE
from tests.helpers import bearings as made_bearings


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NACDRIVE_DATA", str(tmp_path / "sets"))


def test_list_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_bearings.xjtu(tmp_path / "sets/xjtu-sy")
    assert dispatch(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert f"lies in {tmp_path / 'sets/xjtu-sy'}" in shown and f"not in {tmp_path / 'sets/mnist'}" in shown
    assert "nacdrive data fetch mnist" in shown and "by hand from https://biaowang.tech" in shown


def test_check_counts_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made_bearings.xjtu(tmp_path / "sets/xjtu-sy")
    assert dispatch(["data", "check", "xjtu-sy"]) == 0
    assert capsys.readouterr().out == "Bearing1_1 (35Hz12kN): 12 snapshots of 64 samples over 0.18 hours\n"
    for number in (2, 3, 4, 5, 6, 7):
        (folder / f"{number}.csv").write_text("1,2\nnan,2\n")
    (folder / "9.csv").unlink()
    assert dispatch(["data", "check", "xjtu-sy", str(tmp_path / "sets")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("PROBLEM: ") and "lacks 9.csv" in lines[0]
    assert lines[1].startswith("Bearing1_1 (35Hz12kN): 11 snapshots")
    assert [line.endswith("2.csv line 2 holds 'nan' where a finite number belongs: mend the file.") for line in lines][
        2
    ]
    assert len(lines) == 8 and lines[-1] == "PROBLEM: 1 more files of Bearing1_1 are damaged"


def test_a_damaged_first_file_is_named_and_the_others_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made_bearings.xjtu(tmp_path, "Bearing1_1")
    made_bearings.xjtu(tmp_path, "Bearing1_2", 3)
    for number in (1, 4):
        (first / f"{number}.csv").write_text("nan,2\n")
    warm = made_bearings.pronostia(tmp_path / "p", temperature=True)
    (warm / "temp_00002.csv").write_text("9;0;40\n9;0\n")
    made_bearings.pronostia(tmp_path / "p", "Bearing1_2")
    assert dispatch(["data", "check", "xjtu-sy", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("PROBLEM: ") for line in lines] == [True, True, False]
    assert "1.csv line 1 holds 'nan'" in lines[0] and "4.csv line 1 holds 'nan'" in lines[1]
    assert lines[2].startswith("Bearing1_2 (35Hz12kN): 3 snapshots")
    # Where every file of vibration is sound it is what kept the bearing from being opened.
    assert dispatch(["data", "check", "pronostia", str(tmp_path / "p")]) == 1
    problem, line = capsys.readouterr().out.splitlines()
    assert "temp_00002.csv line 1 has 3 columns where 5 belong" in problem and line.startswith("Bearing1_2 ")


def test_odd_clocks_are_noted_but_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made_bearings.pronostia(tmp_path, temperature=True)
    path = folder / "acc_00003.csv"
    path.write_text(path.read_text().replace("9,0,20,", "8,59,0,"))
    assert dispatch(["data", "check", "pronostia", str(tmp_path)]) == 0
    note, line = capsys.readouterr().out.splitlines()
    assert note.startswith("note: Bearing1_1: the clock of 1 of 4 files") and line.endswith("hours, with temperature")


def test_check_of_what_is_absent_is_one_sentence(tmp_path: Path) -> None:
    for name, why in (("mnist", "lacks train-images"), ("par", "does not exist"), ("hust", "does not exist")):
        with pytest.raises(UserError, match=why):
            dispatch(["data", "check", name])
    with pytest.raises(UserError, match="name the data sets to fetch"):
        dispatch(["data", "fetch"])
    with pytest.raises(UserError, match="get it from https"):
        dispatch(["data", "fetch", "hust"])


def test_our_warnings_are_sentences() -> None:
    assert format_warning("2 files are odd.", UserWarning, str(PACKAGE / "data/par.py"), 7) == (
        "nacdrive: 2 files are odd.\n"
    )
    assert format_warning("old", UserWarning, "elsewhere.py", 7) == "elsewhere.py:7: UserWarning: old\n"
