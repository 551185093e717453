"""``tools/memory_table.py``: what it compares, and with which intervals."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import memory_table

    return memory_table


def line(memory: str, seed: int, returns: list[float]) -> dict:
    about = {"task": "all", "parameters": 1, "seconds": 1.0, "finished": 0}
    return {**about, "memory": memory, "seed": seed, "returns": returns}


def test_laps_are_paired_by_track_and_seed_whatever_the_order_of_the_lines(tool):
    tracks = np.random.default_rng(0).normal(500, 200, 12)
    rows = [line("lstm", seed, (tracks + 10 * seed).tolist()) for seed in (0, 1, 2)]
    rows += [line("nac-steady", seed, (tracks + 10 * seed + 30 + seed).tolist()) for seed in (2, 0, 1)]
    over_laps, over_seeds = tool.compared(rows, "nac-steady", "lstm", "all")
    assert over_laps["value"] == pytest.approx(31) and over_seeds["value"] == pytest.approx(31)
    assert 30 < over_laps["interval95"][0] < 31 < over_laps["interval95"][1] < 32
    # Student's t of three seeds: 31 +- 4.30 * 1 / sqrt(3).
    np.testing.assert_allclose(over_seeds["interval95"], [31 - 2.484, 31 + 2.484], atol=1e-3)
    shown = tool.tables([*rows, line("none", 0, tracks.tolist())])
    assert tool.between(over_seeds) == "+31 (+29 to +33)"
    assert any(text.startswith("| nac-steady - lstm | +31") and text.endswith("+31 (+29 to +33) |") for text in shown)
    assert any(text.startswith("| nac-steady - none | +30") for text in shown)  # the one seed that both have


def test_it_trains_judges_and_goes_on(tmp_path: Path):
    """The whole tool on a training of two minibatches, twice: the second time nothing is left to do."""
    small = "--rounds 1 --episodes 1 --steps 1 --last-steps 1 --eval-episodes 1 --max-frames 20 --frames 1 --repeat 4"
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import memory_table as table\n"
        f"table.TRAINING, table.TRACKS = '{small} --no-instruments --channels 4 4 4 --memory-window 2', 2\n"
        "table.TASKS = {'all': '--blackout 0.5'}\n"
        "table.main()"
    )
    results = tmp_path / "memory.jsonl"
    command = ["-c", program, "--out", tmp_path / "runs", "--results", results]
    command += ["--memories", "gru", "--seeds", "0", "--tasks", "all"]
    first, second = (subprocess.run([sys.executable, *command], capture_output=True, text=True) for _ in range(2))
    assert first.returncode == 0, first.stderr
    (row,) = [json.loads(text) for text in results.read_text().splitlines()]
    assert row["memory"] == "gru" and len(row["returns"]) == 2 and row["parameters"] > 1000
    assert "trained" in first.stdout and "trained" not in second.stdout
