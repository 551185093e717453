"""Which head tells most is measured once, kept beside the model, and not believed of another model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nacdrive.common.paths import shipped
from nacdrive.models import load_policy
from nacdrive.models.tuning import read_tuning, tuning_file
from tools.head_tuning import tuning_table, write_tuning

MODELS = sorted((shipped("agents") / "carracing").glob("nac_*.pt"))


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_every_shipped_nac_has_a_table_of_its_own(model: Path) -> None:
    table = read_tuning(model)
    assert [one["head"] for one in table] == list(range(16))
    # The page says "does not tell left from right" below 0.6. One that steers by degrees turns the wheel little.
    assert max(one["strength"] for one in table) > 0.8
    assert all(one["name"] in ("phi", "omega", "t", "logits") for one in table)


@pytest.mark.nightly
def test_the_table_is_what_is_measured_on_a_lap() -> None:
    model = shipped("agents") / "carracing" / "nac_steady.pt"
    kept, found = read_tuning(model), tuning_table(load_policy(model), laps=1)
    # One lap of three: the telling heads are the same, their medians near.
    for one, other in zip(kept, found, strict=True):
        if one["strength"] > 0.97 and one["name"] == other["name"]:
            assert other["strength"] > 0.9
            assert (one["left"] < one["right"]) == (other["left"] < other["right"])
    assert found[10]["name"] == "omega"


def test_a_table_of_another_model_is_not_believed(tmp_path: Path) -> None:
    model = tmp_path / "mine.pt"
    shutil.copy(MODELS[0], model)
    assert read_tuning(model) == []
    write_tuning(model, [{"head": 0, "name": "phi", "left": 0.1, "straight": None, "right": 0.9, "strength": 1.0}])
    assert read_tuning(model)[0]["right"] == 0.9
    model.write_bytes(model.read_bytes() + b"x")
    assert read_tuning(model) == []
    tuning_file(model).write_text(json.dumps(["nonsense"]))
    assert read_tuning(model) == []
