"""A file that is there is not replaced unasked, and the refusal comes before the work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing
from tests.helpers.episodes import begin, make_episode

# Models and data that do not exist: were the target looked at after them, another sentence would come.
LINES = {
    "drive --headless --model none.pt --video mine.mp4": ("mine.mp4", "--video"),
    "drive --sim udacity --headless --model none.pt --video mine.mp4": ("mine.mp4", "--video"),
    "replay none --video mine.mp4": ("mine.mp4", "--video"),
    "explain saliency --model none.pt --out mine.png": ("mine.png", "--out"),
    "explain neurons --model none.pt --out mine.svg": ("mine.svg", "--out"),
    "explain wiring --model none.pt --out mine.pdf": ("mine.pdf", "--out"),
    "explain wiring --model none.pt": ("wiring.png", "--out"),
    "expert export --source none.zip --out mine.pt": ("mine.pt", "--out"),
    "predict none --model none.pt --out mine": ("mine/wear.csv", "--out"),
    "predict none --model none.pt --out drawn": ("drawn/wear.png", "--out"),
    "predict none --model none.pt": ("runs/predict-none/wear.csv", "--out"),
    "predict none --task par --model none.pt --out mine": ("mine/classes.csv", "--out"),
    "bench runtime --models none --out mine": ("mine/runtime.md", "--out"),
}
OLD = "a year's work"


@pytest.mark.parametrize("line", LINES)
def test_a_file_that_is_there_is_refused_before_the_work(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, flag = LINES[line]
    target = Path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(OLD)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=rf"^{re.escape(name)} exists: give --overwrite or another {flag}\.$"):
        dispatch(line.split())
    with pytest.raises(UserError) as asked:
        dispatch([*line.split(), "--overwrite"])
    assert "exists" not in str(asked.value), "with --overwrite the work begins, and finds its own mistake"
    assert target.read_text() == OLD and sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_no_target_even_with_overwrite(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder: give the name of a file with --video"):
        refuse_existing(tmp_path, overwrite=True, flag="--video")


def test_a_link_that_leads_nowhere_counts_as_a_file(tmp_path: Path) -> None:
    link = tmp_path / "link.png"
    link.symlink_to(tmp_path / "gone.png")
    with pytest.raises(UserError, match="exists"):
        refuse_existing(link, overwrite=False)


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("explain wiring --out {}", "wiring.svg"),
        ("replay {sample} --video {}", "lap.mp4"),
    ],
)
def test_overwrite_replaces(line: str, target: str, tmp_path: Path) -> None:
    file, short = tmp_path / target, tmp_path / "short"
    file.write_text(OLD)
    begin(short).add(make_episode())
    assert dispatch([*line.format(file, sample=short).split(), "--overwrite"]) == 0
    assert file.stat().st_size > 1000 and OLD.encode() not in file.read_bytes()
