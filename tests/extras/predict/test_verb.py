"""``nacdrive predict`` and ``bench`` as a person calls them."""

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.datasets.mnist import Mnist
from nacdrive.extras.bearings.life import span
from nacdrive.extras.predict import predictions
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from tests.helpers.nightly import daily

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, made_up):
    """Untrained models, and data of each task."""
    folder = tmp_path_factory.mktemp("shelf")
    for name in ("emnist", "par", "pronostia"):
        (folder / name).symlink_to(made_up(name))
        task = load_task(name, "sequence")
        train = task.folds({name: folder / name}, 1, 0, Size(max_samples=40, max_tests=40))[0].train
        torch.manual_seed(0)
        task.save(task.network("lstm", train), folder / f"{name}.pt", {})
    return folder


@pytest.mark.parametrize("verb", daily(["bench table", "bench runtime", "predict"], ["predict"]))
def test_help_answers_without_torch(verb):
    script = f"import sys; sys.argv = ['nacdrive', *{verb.split()!r}, '--help']\nfrom nacdrive.cli.main import main\n"
    script += "try: main()\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 False"


def test_wear_of_a_bearing_is_printed_written_and_drawn(shelf, tmp_path, capsys):
    bearing = shelf / "pronostia/Full_Test_Set/Bearing2_7"
    assert dispatch(["predict", str(bearing), "--model", str(shelf / "pronostia.pt"), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "Bearing2_7: 30 snapshots" in printed
    assert "Bearing2_7 now: " in printed
    assert "learnt from 1 run to failure; ages are compared with the 1 life that the model learnt from." in printed
    header, *rows = (tmp_path / "wear.csv").read_text().splitlines()
    assert header == "bearing,t_s,wear,remaining_s,remaining_low_s,remaining_high_s,wear_shows"
    assert len(rows) == 30
    for row in rows:
        low, middle, high = (float(row.split(",")[column]) for column in (4, 3, 5))
        assert 0 < low < middle < high
    worn = f"About {span(middle)} left, with 80 % probability {span(low)} to {span(high)}"
    flat = f"fails within {span(low)}, half within {span(middle)}, nine in ten within {span(high)}"
    assert worn in printed or flat in printed
    assert f"Look again in {span(low / 2)}" in printed
    assert Image.open(tmp_path / "wear.png").width > 100


def test_pictures_are_classified_whatever_their_size_and_paper(shelf, tmp_path, capsys):
    ink = np.zeros((56, 56), np.uint8)
    ink[10:40, 20:30] = 255
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    Image.fromarray(ink).save(pictures / "a.png")
    Image.fromarray(255 - ink).save(pictures / "b.png")
    out = tmp_path / "out"
    assert dispatch(f"predict {pictures} --task emnist --model {shelf}/emnist.pt --out {out}".split()) == 0
    _, a, b = (out / "classes.csv").read_text().splitlines()
    assert a.split(",")[1:] == b.split(",")[1:]


def test_digits_of_mnist_are_compared_with_their_labels(shelf, tmp_path, capsys, monkeypatch):
    digits = np.load(shelf / "emnist" / "digits.npz")
    images, labels = (digits[name][:20] for name in ("images", "labels"))
    monkeypatch.setattr(predictions, "load_mnist", lambda _: Mnist(images, labels, images, labels))
    folder, out = tmp_path / "mnist", tmp_path / "out"
    folder.mkdir()
    (folder / "t10k-images-idx3-ubyte").touch()
    command = f"predict {folder} --task emnist --model {shelf}/emnist.pt --most 12 --out {out}"
    assert dispatch(command.split()) == 0
    with (out / "classes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    right = [row["digit"] == row["truth"] for row in rows]
    assert len(rows) == 12 and [row["truth"] for row in rows] == [str(label) for label in labels[:12]]
    assert f"right: {100 * sum(right) / 12:.1f} % on average over 12" in capsys.readouterr().out


def test_activities_of_a_recording_are_told_with_the_share_that_is_right(shelf, tmp_path, capsys):
    place, out = shelf / "par/readings.txt", tmp_path
    arguments = ["predict", str(place), "--task", "par", "--model", str(shelf / "par.pt"), "--out", str(out)]
    assert dispatch(arguments) == 0
    assert "right:" in capsys.readouterr().out
    assert len((out / "classes.csv").read_text().splitlines()) == 1 + 6 * 11 * 40
    assert dispatch([*arguments, "--overwrite", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["files"] == [str(out / "classes.csv")]
    with (out / "classes.csv").open() as file:
        answers = list(csv.DictReader(file))
    for told in result["predictions"]:
        mine = [row for row in answers if row["recording"] == told["name"]]
        same = sum(row["activity"] == told["label"] for row in mine) / len(mine)
        assert told["share"] == pytest.approx(same) and {"truth", "right"} <= set(told)


def test_wear_is_a_json_document(shelf, tmp_path, capsys):
    bearing = shelf / "pronostia/Full_Test_Set/Bearing2_7"
    model = str(shelf / "pronostia.pt")
    assert dispatch(["predict", str(bearing), "--model", model, "--out", str(tmp_path), "--json"]) == 0
    columns = json.loads(capsys.readouterr().out)["predictions"]["Bearing2_7"]
    assert {len(column) for column in columns.values() if isinstance(column, list)} == {30}
    assert columns["state"] in ("healthy", "worn", "close to the end") and columns["runs_learnt_from"] == 1
    assert columns["look_again_s"] == pytest.approx(columns["remaining_low_s"][-1] / 2)
    assert columns["sureness"] and "the 1 life that the model learnt from" in columns["basis"]
    assert all(isinstance(value, float) for value in columns["wear"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("predict {s}/pronostia --model {s}/par.pt", "was trained for 'par', not for 'pronostia'"),
        ("predict {s}/nowhere --model {s}/pronostia.pt", "does not exist"),
        ("predict {s}/par --model {s}/pronostia.pt", "holds no vibration files"),
        ("predict {s}/par --task pronostai", "did you mean 'pronostia'"),
        ("predict {s}/pronostia --lives-h 30 --lives-h=-2", "--lives-h must be numbers above 0"),
        ("predict {s}/pronostia --task emnist --model {s}/emnist.pt", "holds no pictures"),
        ("predict {s}/par --task emnist --model nac_exakt", "did you mean|known are"),
        (
            "predict {s}/par --task par",
            "no model file nac_lag.pt, and none is shipped for par: give the path of one",
        ),
        ("predict {s}/par --task par --most 3", "--most is for --task emnist: leave it out"),
        ("predict {s}/par --task par --lives-h 3", "--lives-h is for --task pronostia: leave it out"),
        ("bench table --models lsmt", "did you mean 'lstm'"),
        ("bench table --tasks hust --protocol sequence --out {s}/x", "hust has no place under --protocol sequence"),
    ],
)
def test_mistakes_are_one_sentence(shelf, arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        dispatch(arguments.format(s=shelf).split())


def test_other_channels_are_refused(shelf, tmp_path):
    source = shelf / "pronostia/Full_Test_Set/Bearing2_7"
    one_axis = tmp_path / "Bearing1_1"
    shutil.copytree(source, one_axis, ignore=shutil.ignore_patterns(".nacdrive"))
    for file in one_axis.glob("acc_*.csv"):
        file.write_text("".join(line.rpartition(",")[0] + "\n" for line in file.read_text().splitlines()))
    with pytest.raises(UserError, match="has 5 columns where 6 belong"):
        dispatch(["predict", str(one_axis), "--model", str(shelf / "pronostia.pt")])
    task = load_task("pronostia", "paper")
    train = task.folds({"pronostia": shelf / "pronostia"}, 1, 0, Size(max_samples=40, max_tests=40))[0].train
    task.save(task.network("lstm", train), tmp_path / "paper.pt", {})
    with pytest.raises(UserError, match="under the paper protocol"):
        dispatch(["predict", str(source), "--model", str(tmp_path / "paper.pt")])


@pytest.mark.parametrize("damage", ["text", "cut", "bomb", "larger bomb", "pipe"])
def test_a_bad_picture_is_named_and_never_decoded_or_waited_for(shelf, tmp_path, damage):
    path, sentence = tmp_path / "a.png", r"a\.png is no picture"
    if damage == "text":
        path.write_text("no picture")
    elif damage == "pipe":
        os.mkfifo(path)
        sentence = r"a\.png is no regular file"
    else:
        side = {"cut": 60, "bomb": 10_000, "larger bomb": 14_000}[damage]
        Image.new("1", (side, side)).save(path)
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:50])
        else:
            sentence = r"a\.png has too many pixels to be decoded"
    with pytest.raises(UserError, match=sentence):
        dispatch(f"predict {tmp_path} --task emnist --model {shelf}/emnist.pt --out {tmp_path}/out".split())
    assert not (tmp_path / "out").exists()


def test_classify_is_an_old_word_for_it_and_says_so(shelf, tmp_path, capsys):
    picture = tmp_path / "a.png"
    Image.new("L", (28, 28), 200).save(picture)
    for line in ("predict --task emnist", "classify", "classify --task emnist"):
        out = tmp_path / line.replace(" ", "")
        assert dispatch(f"{line} {picture} --model {shelf}/emnist.pt --out {out}".split()) == 0
    assert capsys.readouterr().err.count("'nacdrive classify' is now 'nacdrive predict --task emnist'") == 2
    assert len({file.read_text() for file in tmp_path.glob("*/classes.csv")}) == 1
