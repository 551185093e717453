"""``nacdrive drive --teach`` as a command, of a simulator that connects, and of an environment of one's own."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.cli.main import dispatch
from nacdrive.datasets.recording import Recording
from nacdrive.models import load_policy
from tests.helpers.udacity_simulators import Simulator, until
from tests.helpers.web_clients import WholeClient
from tests.rollout.test_own_environment import DRIVER, ENVIRONMENT


@contextmanager
def teaching(*arguments: str, folder: Path) -> Iterator[tuple[Callable[[Any], None], list[str]]]:
    """The command in a process, a person at its page who has the wheel, and what it prints; ends by Ctrl-C."""
    command = [sys.executable, "-u", "-m", "nacdrive", "drive", *arguments, "--page-port", "0", "--out", "taught"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    address = None
    try:
        while address is None:
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
            address = re.search(r"http://(127\.0\.0\.1:\d+)", lines[-1])
        page = WholeClient(f"ws://{address[1]}/control", headers={"Origin": "http://127.0.0.1"})
        yield lambda message: page.send(json.dumps(message)), lines
        page.close()
    finally:
        process.send_signal(signal.SIGINT)
        lines += process.communicate(timeout=300)[0].splitlines()
        print("\n".join(lines))
    assert process.returncode in (0, 130), "Ctrl-C is a normal way to stop"


def same(one: Path, other: Path) -> bool:
    weights = [load_policy(path).network.state_dict() for path in (one, other)]
    return all(torch.equal(x, weights[1][name]) for name, x in weights[0].items())


@pytest.mark.nightly
def test_a_simulator_on_the_wire_is_driven_by_what_a_person_showed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    port = free_port()
    record = ["drive", "--sim", "udacity", "--driver", "constant", "--headless", "--seconds", "15", "--record", "laps"]
    process = subprocess.Popen([sys.executable, "-m", "nacdrive", *record, "--port", str(port)])
    with Simulator(port, frame_s=0.05):
        assert process.wait(300) == 0
    train = ["train", "--task", "udacity", "--model", "nac-steady", "--data", "laps", "--epochs", "1", "--window", "2"]
    assert dispatch([*train, "--valid-share", "0", "--out", "first"]) == 0
    model = Path("first/nac_steady.pt")

    options = ["--sim", "udacity", "--model", str(model), "--data", "laps", "--teach", "--port", str(port)]
    with teaching(*options, folder=tmp_path) as (send, lines), Simulator(port, frame_s=0.05) as car:
        car.speed_mph = 9.0
        assert car.drives()
        send({"do": "take"})

        def is_shown() -> bool:
            send({"keys": ["right"]})  # as a page does that has focus, again and again
            return sum(steering == 1.0 for steering, _ in car.commands) >= 40

        assert until(is_shown)
        send({"do": "back"})
        assert until(lambda: list(Path("taught").glob("*.pt")), 300)
        car.speed_mph = 0.0  # it stands: now the new network may take over
        assert car.drives()
    (taught,) = Path("taught").glob("*.pt")
    assert not same(taught, model)
    corrections = Recording.open(next(Path("taught").glob("corrections*")), source="udacity")
    assert corrections.load(0).label.max() == 1.0
    assert any("1 correction" in line for line in lines)


@pytest.mark.nightly
def test_an_own_environment_is_driven_by_what_a_person_showed(tmp_path: Path, monkeypatch: Any) -> None:
    meanings = '    def get_action_meanings(self):\n        return ["stay", "left", "right"]\n\n'
    (tmp_path / "my_lane_env.py").write_text(ENVIRONMENT.replace("    def reset", meanings + "    def reset"))
    (tmp_path / "my_lane_driver.py").write_text(DRIVER)
    monkeypatch.chdir(tmp_path)
    env = ["--env", "my_lane_env:make_env"]
    record = ["record", *env, "--driver", "my_lane_driver:Centre", "--episodes", "4", "--workers", "1", "--out", "laps"]
    assert dispatch(record) == 0
    train = ["train", *env, "--task", "imitation", "--model", "nac-steady", "--data", "laps", "--epochs", "1"]
    assert dispatch([*train, "--window", "2", "--valid-share", "0", "--out", "first"]) == 0
    model = Path("first/nac_steady.pt")

    with teaching(*env, "--model", str(model), "--data", "laps", "--teach", "--episodes", "99", folder=tmp_path) as (
        send,
        lines,
    ):
        send({"do": "take"})

        def is_learnt() -> bool:
            send({"keys": ["right"]})
            return bool(list(Path("taught").glob("*.pt")))

        assert until(is_learnt, 300)
        send({"do": "back"})
    assert not same(Path("taught/nac_steady.pt"), model)
    labels = Recording.open(Path("taught/corrections")).load(0)
    assert set(labels.expert_choice) <= {0, 2} and labels.expert_choice.max() == 2
    assert any("in 1 round" in line for line in lines)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
