"""Time and memory of a layer, measured in a process of its own."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.files import read_json
from nacdrive.extras.bench.config import RuntimeConfig
from nacdrive.extras.bench.runtime import measure_all, write

torch.set_num_threads(1)
SMALL = RuntimeConfig(models=("mha", "gru"), steps=64, features=16, passes=3)


def test_each_layer_gets_a_row_beside_the_papers_numbers(tmp_path):
    config = dataclasses.replace(SMALL, out=tmp_path)
    rows = measure_all(config)
    # The paper's order, not the order asked for.
    assert [row["model"] for row in rows] == ["gru", "mha"]
    for row in rows:
        assert row["status"] == "done"
        assert row["throughput_per_s"] == pytest.approx(1 / row["time_s"])
    text = write(rows, config)
    assert "| 243.9 | 69.05 |" in text
    assert read_json(tmp_path / "runtime.json")["rows"][0]["model"] == "gru"


# In a process of its own, as every layer is measured: one that has much free memory in hand takes it from there.
GIVEN_BACK = """
import torch
from nacdrive.extras.bench.runtime import memory

before = memory("cpu", reset=True)
held = None if before is None else torch.ones(16 * 2**20)
del held
known = before is not None
print(known and (memory("cpu") - before) / 2**20, known and (memory("cpu", reset=True) - before) / 2**20)
"""


@pytest.mark.nightly
def test_memory_that_a_pass_gave_back_is_counted():
    numbers = subprocess.run(
        [sys.executable, "-c", GIVEN_BACK], capture_output=True, text=True, check=True
    ).stdout.split()
    if numbers[0] == "False":
        pytest.skip("this system does not tell a process's peak memory")
    at_peak, afterwards = map(float, numbers)
    assert 60 < at_peak < 80
    assert afterwards < 30


def test_a_layer_that_fails_is_a_row(monkeypatch):
    # 5 heads do not divide 16 features; the config alone refuses that.
    config = dataclasses.replace(SMALL, models=("mha",))
    object.__setattr__(config, "heads", 5)
    (row,) = measure_all(config)
    assert (row["status"], row["kind"]) == ("failed", "error")
    assert "ValueError" in row["reason"]


def test_mistakes_are_told():
    with pytest.raises(UserError, match="did you mean 'mha'"):
        measure_all(dataclasses.replace(SMALL, models=("mah",)))
    with pytest.raises(UserError, match="not divisible"):
        dataclasses.replace(SMALL, heads=5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_is_measured_too():
    (row,) = measure_all(dataclasses.replace(SMALL, models=("mha",), devices=("cuda",)))
    assert row["status"] == "done"
    assert row["peak_mib"] > 0
