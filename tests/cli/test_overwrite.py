"""A file that is there is not replaced unasked, and the refusal comes before the work."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from nacdrive.cli.doctor import check_results
from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing, write_text
from nacdrive.common.paths import shipped
from nacdrive.common.result_folder import release_folders, result_folder
from nacdrive.datasets.recording import Recording
from tests.cli.test_fuzz import entries
from tests.helpers.bench_results import done
from tests.helpers.episodes import begin, make_episode
from tests.helpers.udacity_logs import make_log

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
    with pytest.raises(UserError, match="/ is a folder: give the name of a file with --out"):
        dispatch(["explain", "wiring", "--out", "/", "--overwrite"])
    with pytest.raises(UserError, match="is a folder: give the name of a file with --video"):
        refuse_existing(tmp_path, overwrite=True, flag="--video")


def test_doctor_says_of_a_link_that_leads_nowhere_that_no_results_can_be_written(tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="is a link that leads nowhere"):
        check_results(link)


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


SAMPLE = shipped("recordings") / "carracing-sample"
KEPT = (
    "notes.txt", "thesis.docx", "holiday.mp4", "driving_log.csv", "IMG/center_2018_07_16_17_11_43_382.jpg",
    "made-up/thesis.docx", "tensorboard/events.out.tfevents.1.vm", "metrics.jsonl", "episodes.jsonl", "results.jsonl",
    "log.jsonl", "expert-mine.jsonl", "lake.jsonl", "mountain.jsonl", ".x.partial", "eval/.nacdrive-result",
    "eval/metrics.json", "episode-favourite.parquet", "drives/episode-favourite.parquet", "damaged/mine.parquet",
    "cells/mine.pt", "old.pt", ".nacdrive-replaced-by-me/x", "recording/mine.txt", "training/mine.pt", "empty/",
)  # fmt: skip
"""One file of every kind that a user might keep beside a result, and an empty folder."""
INTO_A_FOLDER = {
    "record": "record --episodes 1 --expert geometric",
    "train": f"train --data {SAMPLE} --model gru --epochs 1",
    "eval": "eval --model nac_steady.pt --episodes 1",
    "arena": "arena --models nac_steady.pt nac_exact.pt --headless",
    "demo": "demo --episodes 2 --page-port 0",
    "hunt": "hunt --episodes 1",
    "expert train": "expert train --timesteps 64 --workers 1",
    "expert imitate": "expert imitate",
    "expert eval": "expert eval --expert geometric --episodes 1",
    "bench table": "bench table --tasks synthetic-decay --models dense",
    "bench run": "bench run --tasks synthetic-decay --models dense",
    "bench report": "bench report results",
    "bench robustness": "bench robustness results",
    "bench runtime": "bench runtime --models dense --steps 8 --passes 1",
    "recordings merge": f"recordings merge {SAMPLE} other",
    "recordings import": "recordings import log",
    "recordings export": f"recordings export {SAMPLE} --to lerobot",
    "predict": "predict pictures --task emnist",
}
WRITE_THEIR_FILES = ("bench report", "bench runtime", "predict")
"""Those that have a folder for a few files of known names, whatever lies beside them."""


@pytest.mark.parametrize("verb", INTO_A_FOLDER)
@pytest.mark.parametrize("kind", ["result", "recording"])
def test_what_a_user_keeps_survives_every_verb(
    verb: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    if kind == "recording":
        begin(out).add(make_episode())
    else:
        result_folder(out)
        write_text(out / "run.json", "{}")
        release_folders()
    # What the verbs read, so that each gets as far as the folder.
    begin(tmp_path / "other").add(make_episode(9))
    make_log(tmp_path / "log")
    write_text(tmp_path / "results/results.jsonl", "".join(json.dumps(done(m, 0.9)) + "\n" for m in ("gru", "lstm")))
    for model in ("gru", "lstm"):
        write_text(tmp_path / f"results/cells/emnist-{model}-0/model.pt", "")
    (tmp_path / "pictures").mkdir()
    Image.new("L", (28, 28), 90).save(tmp_path / "pictures/seven.png")
    for name in KEPT:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (out / name).mkdir()
        else:
            (out / name).write_text(f"precious {name}")
    line = [*INTO_A_FOLDER[verb].split(), "--out", str(out), "--overwrite"]
    if verb in WRITE_THEIR_FILES:
        assert dispatch(line) == 0
    else:
        with pytest.raises(UserError, match=re.escape(str(out))):
            dispatch(line)
    release_folders()
    for name in KEPT:
        kept = (out / name).is_dir() if name.endswith("/") else (out / name).read_text() == f"precious {name}"
        assert kept, name


@pytest.mark.parametrize(
    "line",
    [
        "eval --model mine/nac_steady.pt --expert none --episodes 1 --max-frames 2 --workers 1",
        "eval --env udacity --data mine/log",
        "expert eval --expert mine/ppo.pt --episodes 1 --workers 1",
        "arena --models mine/nac_steady.pt nac_exact --headless --max-frames 2",
        "recordings export mine/drives --to lerobot",
        "recordings export mine/drives --to minari",
    ],
)
def test_a_folder_that_the_verb_reads_is_not_replaced(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    for name in ("nac_steady.pt", "ppo/ppo.pt"):
        shutil.copy(shipped("agents") / "carracing" / name, "mine")
    shutil.copytree(shipped("recordings") / "carracing-sample", "mine/drives")
    make_log(Path("mine/log"))
    names = [path.relative_to("mine").as_posix() for path in Path("mine").rglob("*")]
    Path("mine/.nacdrive-result").write_text("".join(f"{json.dumps(name)}\n" for name in names))
    with pytest.raises(UserError, match=r"^mine.* is read here, and --overwrite would delete it"):
        dispatch([*line.split(), "--out", "mine", "--overwrite"])
    release_folders()
    assert all((Path("mine") / name).exists() for name in names)


def test_a_recording_of_drives_grows_and_is_replaced_with_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["drive", "--driver", "constant", "--headless", "--episodes", "1", "--max-frames", "8", "--record", "laps"]
    seeds = []
    for seed, more in ((4_000_000, ()), (4_000_001, ()), (4_000_002, ("--overwrite",))):
        assert dispatch([*line, "--seed", str(seed), *more]) == 0
        seeds.append([info.seed for info in Recording.open(Path("laps")).episodes])
    assert seeds == [[4_000_000], [4_000_000, 4_000_001], [4_000_002]]


def test_a_recording_that_a_teaching_learns_from_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLE, "laps")
    line = "drive --teach --data laps --record ./laps --overwrite --page-port 0 --no-wait --fast --episodes 1"
    with pytest.raises(UserError, match="laps is learnt from here, and --overwrite would delete it"):
        dispatch(line.split())
    assert len(Recording.open(Path("laps"))) == len(Recording.open(SAMPLE))


def fields_of(config: type) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


def test_every_verb_that_replaces_a_folder_is_among_them() -> None:
    files = {
        "drive",
        "replay",
        "share",
        "playground",
        "export",
        "explain",
        "sim roads",
        "expert export",
        "recordings card",
    }
    there = {name.removeprefix("nacdrive ") for name, config in entries().items() if "overwrite" in fields_of(config)}
    assert {name for name in there if name not in files and name.split()[0] not in files} - {"bench plan"} == set(
        INTO_A_FOLDER
    )


TINY_BENCH = "--tasks synthetic-decay --models dense gru --epochs 1 --most 40 --folds 1 --budget smoke --workers 1"
WHOLE_FOLDERS = {
    "record": "record --expert geometric --episodes 1 --max-frames 8 --workers 1 --out {out}",
    "train": "train --data short --model gru --epochs 1 --workers 1 --out {out}",
    "eval": "eval --model nac_steady.pt --episodes 1 --max-frames 8 --expert none --workers 1 --out {out}",
    "arena": "arena --models nac_steady.pt nac_exact.pt --headless --max-frames 8 --out {out}",
    "hunt": "hunt --model nac_steady.pt --expert geometric --renderer fast --episodes 1 --areas seeds --max-frames 8 "
    "--workers 1 --out {out}",
    "demo": "demo --episodes 2 --epochs 1 --dagger 0 --expert geometric --headless --model gru --out {out}",
    "expert train": "expert train --timesteps 256 --n-envs 1 --n-steps 128 --eval-episodes 1 --workers 1 --out {out}",
    "expert imitate": "expert imitate --expert racing-line --rounds 1 --steps 1 --last-steps 1 --batch-size 2 "
    "--episodes 1 --max-frames 40 --eval-episodes 1 --out {out}",
    "expert eval": "expert eval --expert geometric --episodes 1 --renderer fast --workers 1 --out {out}",
    "bench table": f"bench table {TINY_BENCH} --out {{out}}",
    "bench run": f"bench run {TINY_BENCH} --out {{out}}",
    "bench report": "bench report bench --out {out}",
    "bench robustness": "bench robustness bench --workers 1 --out {out}",
    "bench runtime": "bench runtime --models dense --steps 8 --passes 1 --out {out}",
    "recordings merge": "recordings merge short other --out {out}",
    "recordings import": "recordings import log --out {out}",
    "recordings export": "recordings export short --to lerobot --out {out}",
    "recordings export minari": "recordings export short --to minari --out {out}-v0",
    "recordings export udacity": "recordings export log-recording --to udacity --out {out}",
    "predict": "predict pictures --task emnist --out {out}",
    "drive --record": "drive --model nac_steady.pt --headless --episodes 1 --max-frames 8 --record {out}",
}
WHOLE_FILES = {
    "drive": "drive --model nac_steady.pt --headless --episodes 1 --max-frames 8 --video {out}/lap.mp4",
    "replay": "replay short --video {out}/lap.mp4",
    "share": "share short --model nac_steady.pt --out {out}/lap.html",
    "playground": "playground --out {out}/playground.html",
    "explain effect": "explain effect --data short --out {out}/effect.png",
    "explain saliency": "explain saliency --data short --out {out}/saliency.png",
    "explain neurons": "explain neurons --data short --out {out}/neurons.png",
    "explain wiring": "explain wiring --head 1 --out {out}/wiring.png",
    "export": "export nac_steady.pt --to safetensors --out {out}/policy.safetensors",
    "export onnx": "export nac_steady.pt --to onnx --out {out}/policy.onnx",
    "export c": "export nac_steady.pt --to c --out {out}/policy.c",
    "export html": "export nac_steady.pt --to html --lap short --out {out}/policy.html",
    "expert export": "expert export --source ppo.zip --out {out}/ppo.pt",
    "sim roads": "sim roads --count 1 --columns 1 --out {out}/roads.jpg",
    "recordings card": "recordings card {out}",
}


DESK = (
    "record --expert geometric --episodes 2 --max-frames 40 --workers 1 --out short",
    f"bench run {TINY_BENCH} --out bench",
    "recordings import log --out log-recording",
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with what the verbs read: made once, by the verbs themselves."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_log(Path("log"))
        for line in DESK:
            assert dispatch(line.split()) == 0
        begin(Path("other")).add(make_episode(9))
        Path("pictures").mkdir()
        Image.new("L", (28, 28), 90).save("pictures/seven.png")
        shutil.copy(shipped("agents") / "carracing" / "ppo" / "ppo.zip", ".")
    release_folders()
    return folder


def plant(folder: Path) -> dict[Path, str]:
    """Files of a user's under names that are still free in ``folder``, and what they hold."""
    names = [name for name in KEPT if not name.endswith("/")]
    kept = {folder / name: f"precious {name}" for name in names if not (folder / name).exists()}
    for path, text in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return kept


@pytest.mark.nightly
@pytest.mark.parametrize("verb", WHOLE_FOLDERS)
def test_what_a_user_puts_into_a_real_result_survives(
    verb: str, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk)
    line = WHOLE_FOLDERS[verb].format(out=tmp_path / "out").split()
    out = Path(line[-1])
    beside = plant(tmp_path)
    assert dispatch(line) == 0
    release_folders()
    kept = plant(out)
    with contextlib.suppress(UserError):
        dispatch([*line, "--overwrite"])
    release_folders()
    assert {path: path.read_text() for path in (*kept, *beside)} == kept | beside
    for path in kept:
        path.unlink()
    for folder in sorted((path for path in out.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    # Without them the same line reaches its end: it was they that kept it from deleting.
    assert dispatch([*line, "--overwrite"]) == 0
    release_folders()
    assert {path: path.read_text() for path in beside} == beside


@pytest.mark.nightly
@pytest.mark.parametrize("verb", WHOLE_FILES)
def test_a_file_is_replaced_and_nothing_beside_it(
    verb: str, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk)
    line = WHOLE_FILES[verb].format(out=tmp_path).split()
    target = tmp_path / "README.md" if verb == "recordings card" else Path(line[-1])
    if verb == "recordings card":
        shutil.copytree(desk / "short", tmp_path, dirs_exist_ok=True)
    target.write_text(OLD)
    kept = plant(tmp_path)
    assert dispatch([*line, "--overwrite"]) == 0
    release_folders()
    assert {path: path.read_text() for path in kept} == kept
    assert OLD.encode() not in target.read_bytes()


def test_every_verb_with_overwrite_runs_to_its_end_in_one_of_them() -> None:
    names = {name.removeprefix("nacdrive ") for name, config in entries().items() if "overwrite" in fields_of(config)}
    assert names - {"bench plan"} <= {*WHOLE_FOLDERS, *WHOLE_FILES}
