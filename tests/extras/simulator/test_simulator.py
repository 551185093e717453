from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pygame
import pytest
from numpy.typing import NDArray

from nacdrive.cli.main import dispatch
from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.udacity import UdacityEnv
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.envs.udacity_track.window import Window
from nacdrive.extras.simulator.simulator import Keys, UdacitySimulator
from tests.helpers import udacity_loop as loop
from tests.helpers.nightly import daily


@pytest.fixture
def env() -> Iterator[UdacityTrackEnv]:
    made = make_udacity_track(randomize=False, repeat=1)
    made.reset(seed=0)
    yield made
    made.close()


def drive_until(drive: UdacitySimulator, metres: float, longest_s: float = 120) -> None:
    """Frame after frame, no faster than a quarter of real time allows, until the car has come so far."""
    end = time.monotonic() + longest_s
    with drive.client:
        while drive.env.track_position.driven < metres and time.monotonic() < end:
            drive.frame()
            time.sleep(0.005)


@pytest.mark.parametrize("culture", daily(["en-US", "de-DE"], ["de-DE"]))
def test_a_server_drives_it_through_the_wire(env: UdacityTrackEnv, culture: str) -> None:
    driver, seen, lines = PurePursuit(), [], []
    env.place(60.0, speed=8.0)
    driver.reset(env)

    def decide(frame: NDArray[np.uint8], t_s: float, speed_mps: float) -> Action:
        seen.append((frame.shape, speed_mps))
        return driver.act()

    with loop.drive(UdacityEnv(port=0), decide) as driven:
        drive = UdacitySimulator(env, "127.0.0.1", driven.env.port, culture, say=lines.append)
        drive_until(drive, 13.0)
    assert env.track_position.driven >= 13 and drive.off_road == 0 and env.interventions == 0
    assert len(seen) > 10 and seen[-1][0] == (160, 320, 3) and seen[-1][1] > 3
    assert drive.client.lost == 0 and drive.client.connections == 1
    assert any("connected" in line for line in lines) and "0.01 laps" in drive.summary()


def test_a_lost_car_is_put_back_and_said_so(env: UdacityTrackEnv) -> None:
    lines: list[str] = []
    drive = UdacitySimulator(env, "127.0.0.1", 1, say=lines.append)
    env.place(60.0, env.track.half_width + 3.5, heading=0.8, speed=10.0)
    for _ in range(50):
        drive.frame()
    assert env.interventions == 1 and "put back" in lines[0] and drive.off_road == 1
    assert abs(env.track_position.offset) < 0.1


def test_it_drives_for_as_long_as_it_is_asked_to(env: UdacityTrackEnv) -> None:
    drive = UdacitySimulator(env, "127.0.0.1", 1, say=lambda line: None)
    began = time.monotonic()
    drive.run(0.3)
    # A busy machine sees the drive in slow motion.
    assert time.monotonic() - began >= 0.3 and env.t_s > 0


def test_keys() -> None:
    assert Keys.of(set()) == Keys(False, 0, 0)
    assert Keys.of({"w", "a"}) == Keys(True, 1, -1)
    assert Keys.of({"down", "right"}) == Keys(True, -1, 1)
    assert Keys.of({"d"}) == Keys(False, 0, 1)  # steering alone leaves the wheel to the server


@pytest.fixture
def display() -> Iterator[str]:
    """A display of our own, so that the window is tested where nobody sits before one."""
    if not (shutil.which("Xvfb") and shutil.which("xdotool")):
        pytest.skip("needs Xvfb and xdotool")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x720x24"],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    number = os.read(read, 16).decode().strip()
    yield f":{number}"
    server.terminate()
    server.wait()
    os.close(read)


def test_a_person_drives_in_the_window(display: str, env: UdacityTrackEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", display)
    window = Window()
    drive = UdacitySimulator(env, "127.0.0.1", 1, say=lambda line: None, window=window)
    drive.frame()
    assert drive._telemetry() is not None
    assert np.ptp(pygame.surfarray.array3d(window.surface)) > 100  # the road is in the window
    subprocess.run(["xdotool", "windowfocus", str(pygame.display.get_wm_info()["window"])], check=True, timeout=120)
    subprocess.run(["xdotool", "keydown", "w", "keydown", "d"], check=True)
    for _ in range(40):
        drive.frame()
    assert drive._telemetry() is None  # what the simulator sends while a person drives
    assert env.car.speed > 1 and env.track_position.heading_error(env.car.heading) > 0
    subprocess.run(["xdotool", "keyup", "w", "keyup", "d", "key", "Escape"], check=True)
    subprocess.run(["xdotool", "keydown", "Escape"], check=True)
    drive.frame()
    window.close()
    assert drive.closed


def test_window_without_a_display_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    if os.name != "posix" or shutil.which("Xvfb") is None:
        pytest.skip("only where the display is named by DISPLAY")
    with pytest.raises(UserError, match="no window can be opened"):
        Window()


def test_a_window_that_nobody_would_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.raises(UserError, match=r"no window can be opened here \(there is no display\)"):
        Window()


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["sim", "udacity", "--seconds", "0.5", "--port", "1", "--plain"]) == 0
    printed = capsys.readouterr().out
    assert "waits for a driver on 127.0.0.1:1" in printed and "0.00 laps" in printed
    with pytest.raises(UserError, match="unknown --locale"):
        dispatch(["sim", "udacity", "--locale", "xx-YY", "--plain"])


@pytest.mark.parametrize(
    "settings",
    daily([{}, {"DISPLAY": ":7771"}, {"SDL_VIDEODRIVER": "dummy"}], ["{}"]),
)
def test_a_window_without_a_display_is_refused_in_one_sentence(settings: dict[str, str]) -> None:
    gone = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    environment = {name: value for name, value in os.environ.items() if name not in gone} | settings
    line = "import sys; sys.argv = 'nacdrive sim udacity --window --seconds 1'.split()\n"
    line += "from nacdrive.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", line], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no window can be opened here" in done.stderr and "Traceback" not in done.stderr
    assert "waits for a driver" not in done.stdout
