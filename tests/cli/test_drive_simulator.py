"""``nacdrive drive --sim udacity`` from the command's function: driven, filmed, recorded; a person at the page."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from simple_websocket import Client

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.models import PolicyConfig
from nacdrive.models.files import save_policy
from nacdrive.models.policy import Policy
from tests.helpers.udacity_simulators import Simulator, until


def small_policy(path: Path, window: int = 2) -> Path:
    torch.manual_seed(0)
    config = PolicyConfig(
        "udacity",
        "nac-steady",
        (),
        window,
        1,
        0.04,
        160,
        320,
        None,
        (60, 135),
        (33, 100),
        True,
        d_model=16,
        num_heads=2,
    )
    save_policy(Policy.new(config, "small"), path)
    return path


@pytest.mark.parametrize(("host", "told"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_port_that_other_machines_reach_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str, told: bool
) -> None:
    from nacdrive.cli.drive import DriveConfig, run

    model = str(small_policy(tmp_path / "small.pt"))
    run(DriveConfig(env="udacity", model=model, port=free_port(), headless=True, seconds=0.1, host=host))
    said = capsys.readouterr().out
    assert ("other machines reach that port too" in said) == told and "Waiting for the simulator" in said


def test_the_command_drives_films_records_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from nacdrive.cli.drive import DriveConfig, run

    port = free_port()
    config = DriveConfig(
        env="udacity",
        model=str(small_policy(tmp_path / "small.pt")),
        port=port,
        page_port=0,
        seconds=6.0,
        record=tmp_path / "kept",
        video=tmp_path / "film.mp4",
    )
    command = Thread(target=run, args=(config,))
    command.start()
    with Simulator(port, "de-DE", frame_s=0.05) as car:
        assert car.drives(12)
        # Standing still at --speed 20: full throttle.
        assert car.commands[-1][1] == 1.0 and abs(car.commands[-1][0]) < 1
        # What it still drives until its time is over, nobody looks at.
        car._frame_s = 0.25
        command.join(120)
        assert not command.is_alive() and car.client.lost == 0
    said = capsys.readouterr().out
    for words in (
        "watch at http://127.0.0.1",
        f"Waiting for the simulator on port {port}",
        "has connected",
        "in 1 drive,",
    ):
        assert words in said
    recording = Recording.open(tmp_path / "kept", source="udacity")
    episode = recording.load(0)
    assert len(episode) >= 12 and episode.decoded().shape[1:] == (160, 320, 3) and (episode.choice == -1).all()
    assert (tmp_path / "film.mp4").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speed": 45.0}, "--speed"),
        ({"allow_control": True, "headless": True}, "needs the page"),
        ({"pace": -1.0}, "--pace"),
        ({"seconds": 0.0}, "--seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    from nacdrive.cli.drive import DriveConfig

    with pytest.raises(UserError, match=words):
        DriveConfig(env="udacity", **options)


def test_the_port_is_the_pages_without_a_simulator_and_the_simulators_with_one() -> None:
    from nacdrive.cli.drive import DriveConfig

    assert DriveConfig().page_port == 8090 and DriveConfig(port=1234).page_port == 1234
    assert DriveConfig(port=1234, page_port=0).page_port == 0
    assert DriveConfig(env="udacity", port=1234).page_port == 8090


def test_the_command_lets_a_page_take_the_wheel_and_keeps_the_correction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nacdrive.cli.drive import DriveConfig, run

    port, page = free_port(), free_port()
    model, kept = str(small_policy(tmp_path / "small.pt")), tmp_path / "kept"
    options = {"port": port, "page_port": page, "seconds": 5.0, "saliency_every": 0, "corrections": kept}
    config = DriveConfig(env="udacity", model=model, allow_control=True, record=tmp_path / "whole", **options)
    command = Thread(target=run, args=(config,))
    command.start()
    with Simulator(port, frame_s=0.05) as car:
        assert car.drives()
        person = Client(f"ws://127.0.0.1:{page}/control", headers={"Origin": "http://127.0.0.1"})
        person.send('{"do": "take"}')

        def held() -> bool:
            person.send('{"keys": ["right"]}')
            return bool(car.commands[-1][0] == 1.0)

        assert until(held)
        car._frame_s = 0.25
        person.send('{"do": "reset"}')
        person.close()
        command.join(120)
    assert not command.is_alive()
    said = capsys.readouterr().out
    assert "the browser has gone" in said and said.count("Started over: the policy has forgotten the drive") == 1
    assert "1 correction added to" in said and "1 drive added to" in said
    assert Recording.open(kept, source="udacity").load(0).label[-1] == 1.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_drive_whose_output_is_read_no_more_brakes_and_says_so() -> None:
    command = ["drive", "--sim", "udacity", "--driver", "constant", "--headless"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nacdrive", *command, "--port", str(port := free_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    assert "Waiting for the simulator" in process.stdout.readline()
    with Simulator(port, frame_s=0.02) as car:
        assert "has connected" in process.stdout.readline() and car.drives()
        process.stdout.close()
        car.speed_mph = 20.0
        # That it has connected is the next line, which nobody reads.
        with Simulator(port, frame_s=0.02):
            assert until(lambda: car.commands[-1][1] == -1.0, 120)
            car.speed_mph = 3.0
            assert process.wait(120) == 0 and until(lambda: car.commands[-1] == (0.0, 0.0), 120)
    assert process.stderr.read() == "nacdrive: nobody reads what is told here any more: the drive ends.\n"
