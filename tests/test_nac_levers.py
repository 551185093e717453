"""``tools/nac_levers.py``: the order of its trainings, what it keeps, and its intervals."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("nac_levers", ROOT / "tools/nac_levers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_seed_is_whole_before_the_next_begins_and_emnist_comes_last(tool):
    found = list(tool.jobs(["emnist", "synthetic-xor", "synthetic-decay"], ["plain", "block"], 2))
    assert len({job.key for job in found}) == len(found)
    plain = [job for job in found if job.table == "plain" and job.task != "emnist"]
    assert [job.seed for job in plain] == sorted(job.seed for job in plain)
    assert "emnist" not in [job.task for job in found[: len(found) // 3]]
    names = [row.name for members in tool.TABLES.values() for row in members]
    assert len(names) == len(set(names))


def test_every_row_can_be_built(tool):
    from nacdrive.tasks import load_task

    task = load_task("synthetic-recall")
    samples = task.part("train", 0, 2)
    for members in tool.TABLES.values():
        for row in members:
            if row is not tool.PEER:
                task.network(row.model, samples, **row.options)


def test_the_peer_is_given_the_last_step_its_past_and_the_gap_before_it(tool, monkeypatch):
    pytest.importorskip("torch_nac", reason="torch-nac is not installed (pip install nacdrive[bench])")
    monkeypatch.syspath_prepend(ROOT / "tools")
    import torch

    from nacdrive.layers import build

    torch.manual_seed(0)
    layer = build(tool.PEER.model, 16, 4, 8, in_features=6, gap_s=2.0).eval()
    x, t = torch.randn(2, 5, 6), torch.rand(2, 5).cumsum(1)
    gap = (t[:, -1:] - t[:, -2:-1]) / 2.0
    torch.testing.assert_close(layer.last(x, t), layer.nac((x[:, -1:], x, x, gap))[:, 0])
    torch.testing.assert_close(layer(x, t)[:, -1], layer.last(x, t))
    state = layer.init_state(2)
    for i in range(5):
        y, state = layer.step(x[:, i], t[:, i], state)
    torch.testing.assert_close(y, layer.last(x, t))


def test_the_interval_is_students(tool):
    # Imported here: SciPy takes seconds, and every process of the tests collects this file.
    from scipy.stats import ttest_rel

    ours, theirs = [0.9, 0.8, 0.95], [0.7, 0.75, 0.72]
    low, high = tool.interval([a - b for a, b in zip(ours, theirs, strict=True)])
    wanted = ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (low, high) == pytest.approx((wanted.low, wanted.high))
    assert tool.interval([0.1]) is None


def test_what_is_not_shown_is_said(tool):
    scores = {"a": {0: 0.5, 1: 0.9, 2: 0.7}, "b": {0: 0.6, 1: 0.7, 2: 0.7}, "worse": dict.fromkeys(range(3), 0.1)}
    assert tool.verdict("synthetic-decay", scores["a"], scores, ["b", "worse"]).endswith("not shown")
    sure = {0: 0.8, 1: 0.91, 2: 0.9}
    assert tool.verdict("synthetic-decay", sure, scores, ["b"]).startswith("b +0.203 [")
    assert "not shown" not in tool.verdict("synthetic-decay", sure, scores, ["b"])
    assert "one seed" in tool.verdict("synthetic-decay", {0: 0.8}, scores, ["b"])


@pytest.mark.nightly
def test_a_run_keeps_what_is_done_and_a_line_cut_short_is_done_again(tool, tmp_path):
    results = tmp_path / "rows.jsonl"
    rows = [
        {"task": job.task, "row": job.row.name, "seed": job.seed, "scores": {"r2": 0.5}}
        for job in tool.jobs(["synthetic-recall"], ["plain"], 1)
        if job.row.name != "mha"
    ]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"task": "synthetic-re')
    command = [sys.executable, ROOT / "tools/nac_levers.py", "run", "--tasks", "synthetic-recall", "--tables", "plain"]
    command += ["--seeds", "1", "--most", "72", "--results", results]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("1 trainings\n")
    (new,) = tool.read_rows(results)[len(rows) :]
    assert new["row"] == "mha" and {"r2", "mae"} <= set(new["scores"]) and new["train_sequences"] == 64
