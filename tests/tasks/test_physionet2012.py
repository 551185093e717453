"""PhysioNet 2012: stays are read as PhysioNet ships them, split by stay, and judged by areas under curves."""

import itertools
import json
import shutil

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.inspect import contents
from nacdrive.datasets.physionet2012 import MEASURED, read_stays
from nacdrive.datasets.synthetic import generate
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.tasks.physionet2012 import auprc, auroc, observed_scale, sample
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit

torch.set_num_threads(1)
NAME = "physionet2012"
HR, P = MEASURED.index("HR"), len(MEASURED)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / NAME
    generate(NAME, folder)
    return folder


@pytest.fixture
def folder(shipped, tmp_path):
    return shutil.copytree(shipped, tmp_path / NAME)


def stay_of(folder, *lines):
    (folder / "set-a/900000.txt").write_text("\n".join(["Time,Parameter,Value", *lines]) + "\n")
    return read_stays(folder)[0]


def test_readings_stand_at_their_times_and_what_is_not_known_is_not_made_up(folder):
    (finding,) = contents(NAME, folder)
    assert finding.text == "60 stays in intensive care, 20 deaths in hospital, 1440 readings"
    stay = stay_of(
        folder, "00:00,RecordID,900000", "00:00,Age,54", "00:00,Height,-1", "00:00,Weight,-1",
        "00:07,HR,73", "00:37,HR,77", "00:37,Temp,-17.8", "03:10,Weight,80", "47:30,HR,62",
        "48:00,HR,60",
    )  # fmt: skip
    assert (stay.name, stay.died, stay.t_s.tolist()) == ("900000", True, [420, 2220, 11400, 171000, 172800])
    assert stay.static[0] == 54 and np.isnan(stay.static[1:]).all()
    mean, std = np.zeros(P + 5), np.full(P + 5, 2.0)
    one = sample(stay, mean, std)
    # Three hours with readings; of the first its latest, and 48:00 belongs to the last hour.
    assert one.fields["t"].tolist() == [2220, 11400, 172800] and one.labels == {"target": torch.tensor(1)}
    x = one.fields["x"]
    assert x[:, HR].tolist() == [38.5, 0, 30] and x[:, P + HR].tolist() == [1, 0, 1]
    assert x[:, P : 2 * P].sum() == 3 and x[:, 2 * P :].tolist() == [[27.0, 0, 0, 0, 0]] * 3
    # A stay of which nothing was read is one empty step.
    nothing = sample(stay_of(folder, "00:00,Age,54"), mean, std)
    assert len(nothing) == 1 and nothing.fields["x"].count_nonzero() == 1


def test_stays_are_split_and_scaled_without_the_test_part(shipped):
    task = load_task(NAME)
    folds = task.folds({NAME: shipped}, 5, 0)
    tested = [s.name for fold in folds for s in fold.tests[NAME]]
    assert len(tested) == len(set(tested)) == 60
    for fold in folds:
        parts = [{s.name for s in part} for part in (fold.train, fold.valid, fold.tests[NAME])]
        assert not any(a & b for a, b in itertools.combinations(parts, 2))
        assert [sum(int(s.labels["target"]) for s in part) for part in (fold.valid, fold.tests[NAME])] == [3, 4]
        read = torch.cat([s.fields["x"][s.fields["x"][:, P + HR] == 1, HR] for s in fold.train])
        # Of an hour's readings the last is kept, so nearly.
        assert abs(float(read.mean())) < 0.1 and abs(float(read.std()) - 1) < 0.1
    few = task.folds({NAME: shipped}, 1, 0, Size(max_samples=8, max_tests=6))[0]
    assert [len(few.train), len(few.valid), len(few.tests[NAME])] == [8, 6, 6]
    mean, std = observed_scale(read_stays(shipped)[:2])
    assert mean[MEASURED.index("Temp")] == 37 and std[MEASURED.index("Temp")] == 1 and mean[P + 2] == 0


def test_areas_under_curves_are_those_of_their_definitions():
    random = np.random.default_rng(0)
    died = random.random(60) < 0.3
    risk = np.round(random.normal(size=60) + died, 1)
    pairs = [(a > b) + (a == b) / 2 for a in risk[died] for b in risk[~died]]
    assert auroc(risk, died) == pytest.approx(np.mean(pairs))
    recalls, precisions = [0.0], []
    for threshold in sorted(set(risk), reverse=True):
        chosen = risk >= threshold
        precisions.append(died[chosen].mean())
        recalls.append(died[chosen].sum() / died.sum())
    assert auprc(risk, died) == pytest.approx(np.dot(np.diff(recalls), precisions))
    assert auroc(np.zeros(60), died) == 0.5 and auprc(np.zeros(60), died) == pytest.approx(died.mean())
    assert (auroc(risk, ~died & died), auprc(risk, ~died & died)) == (0.5, 0.0)


def test_the_epoch_is_chosen_by_auroc(shipped, tmp_path):
    task = load_task(NAME)
    (fold,) = task.folds({NAME: shipped}, 1, 0)
    torch.manual_seed(0)
    network = task.network("gru", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 3, "learning_rate": 1e-2})
    best = fit(network, task, fold.train, fold.valid, config, tmp_path).progress
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert best.best_measure == max(row["valid_auroc"] for row in rows) > 0.5
    assert rows[best.best_epoch]["valid_auroc"] == best.best_measure


def test_another_set_half_of_it_and_lines_that_are_none_are_named(folder, tmp_path):
    with pytest.raises(UserError, match=r"has no set-a and Outcomes-a\.txt beside each other: give set a .* no other"):
        read_stays(tmp_path)
    outcomes, stay = folder / "Outcomes-a.txt", folder / "set-a/900000.txt"
    stay.rename(tmp_path / "900000.txt")
    with pytest.raises(UserError, match=r"set-a lacks 1 of the 60 stays of Outcomes-a\.txt, such as 900000: copy"):
        read_stays(folder)
    (tmp_path / "900000.txt").rename(stay)
    whole = outcomes.read_text()
    outcomes.write_text("\n".join(whole.splitlines()[:31]) + "\n")
    with pytest.raises(UserError, match=r"Outcomes-a\.txt lacks 30 of the 60 stays of set-a, such as 900030"):
        read_stays(folder)
    for text, sentence in (
        ("RecordID,Survival\n", r"Outcomes-a\.txt line 1 does not name RecordID and In-hospital_death"),
        (whole.replace(",-1,0\n", ",-1,2\n", 1), r"Outcomes-a\.txt line 3 is no line of outcomes"),
    ):
        outcomes.write_text(text)
        with pytest.raises(UserError, match=sentence):
            read_stays(folder)
    outcomes.write_text(whole)
    for lines, sentence in (
        (["00:37,HR,70", "00:07,HR,71"], r"900000\.txt line 3 goes back in time, to 00:07: mend"),
        (["00:61,HR,70"], r"900000\.txt line 2 is no 'hh:mm,Parameter,Value'"),
        (["00:07,HR,"], r"900000\.txt line 2 is no 'hh:mm,Parameter,Value'"),
        (["00:07,Hieght,70"], r"unknown parameter in .*900000\.txt line 2 'Hieght': did you mean 'Height'"),
    ):
        with pytest.raises(UserError, match=sentence):
            stay_of(folder, *lines)
    stay.write_text("HR|O2Sat\n")
    with pytest.raises(UserError, match=r"900000\.txt line 1 is not 'Time,Parameter,Value': give set a"):
        read_stays(folder)


def test_a_set_with_hardly_any_deaths_cannot_be_split(folder):
    outcomes = folder / "Outcomes-a.txt"
    outcomes.write_text(outcomes.read_text().replace(",-1,1", ",-1,0"))
    with pytest.raises(UserError, match="has 0 deaths in 60 stays: give all of set a"):
        load_task(NAME).folds({NAME: folder}, 1, 0)
