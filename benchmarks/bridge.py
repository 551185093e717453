"""The bridge's speed: commands a second, and the age of a picture when its command is carried out.

An emulated simulator (the wire of nacdrive.extras.simulator.client, in a process of its own) reports a number with
every picture; the answer's steering carries it back, so each command is matched with its picture. At 50 frames a second
and as fast as it goes; an instantaneous policy and NAC-Steady with a window of 1 and of 16; both engines; beside the
usual drive.py (python-socketio 4.6.0, python-engineio 3.13.2, eventlet, everything answered) in its own environment,
which this script makes in a temporary folder.

    python benchmarks/bridge.py [--seconds 20] [--out FILE] [--classic PYTHON]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from threading import Event, Thread

import numpy as np
import torch
from PIL import Image

from nacdrive.common.action import Action
from nacdrive.envs.udacity import DriveInterruptedError, UdacityEnv
from nacdrive.extras.simulator.client import Telemetry, UdacityClient
from nacdrive.models import PolicyConfig
from nacdrive.models.policy import Policy

FRAME_S = 0.02
NUMBERS = 100_000
"""Pictures are numbered up to here; speed (four decimals) and steering (six) both carry the number."""
CLASSIC = ("python-socketio==4.6.0", "python-engineio==3.13.2", "eventlet", "flask", "pillow", "numpy")
CLASSIC_DRIVE = """
import base64, sys, warnings
from io import BytesIO
warnings.simplefilter("ignore")
import eventlet, eventlet.wsgi, numpy, socketio
from flask import Flask
from PIL import Image
sio = socketio.Server()
app = Flask("drive")

@sio.on("telemetry")
def telemetry(sid, data):
    if data:
        speed = float(data["speed"])
        image = numpy.asarray(Image.open(BytesIO(base64.b64decode(data["image"]))))
        assert image.shape == (160, 320, 3)
        send_control(speed / 10, 0.2)
    else:
        sio.emit("manual", data={}, skip_sid=True)

@sio.on("connect")
def connect(sid, environ):
    send_control(0, 0)

def send_control(steering_angle, throttle):
    sio.emit("steer", data={"steering_angle": str(steering_angle), "throttle": str(throttle)}, skip_sid=True)

eventlet.wsgi.server(eventlet.listen(("127.0.0.1", int(sys.argv[1]))), socketio.WSGIApp(sio, app), log_output=False)
"""


@dataclass(frozen=True)
class Measured:
    """What a simulator saw of a server."""

    steers: float
    """Commands a second."""
    p50_ms: float
    """Median age of a command's picture."""
    p99_ms: float
    """99th percentile of the same."""
    drops: int
    """Connections lost."""
    lost: int
    """Commands that could not be read."""


def simulate(port: int, seconds: float, free: bool) -> Measured:
    """Be a simulator for ``seconds``, after two to warm up."""
    born: dict[int, float] = {}
    ages: list[float] = []
    state = {"count": 0, "measuring": False, "drawn": 0}
    noise = np.random.default_rng(0).integers(0, 255, (20, 40, 3), np.uint8)
    road = Image.fromarray(noise).resize((320, 160))
    buffer = BytesIO()
    # About the 10.7 kB of the simulator's own pictures.
    Image.fromarray(np.asarray(road) + np.random.default_rng(1).integers(0, 12, (160, 320, 3), np.uint8)).save(
        buffer, "JPEG", quality=75
    )
    jpeg = buffer.getvalue()

    def telemetry() -> Telemetry:
        state["count"] += 1
        number = state["count"] % NUMBERS
        born[number] = time.perf_counter()
        return Telemetry(0.0, 0.0, number / 1e4, jpeg)

    def apply(steering: float, throttle: float) -> None:
        number = round(steering * NUMBERS)
        if state["measuring"] and number in born and throttle:
            ages.append(time.perf_counter() - born[number])

    with UdacityClient("127.0.0.1", port, telemetry, apply) as client:
        run(client, 2.0, free)
        state["measuring"], before = True, client.steers
        began = time.perf_counter()
        run(client, seconds, free)
        spent = time.perf_counter() - began
        p50, p99 = np.percentile(ages, [50, 99]) * 1e3 if ages else (float("nan"),) * 2
        return Measured(
            (client.steers - before) / spent,
            float(p50),
            float(p99),
            client.connections - 1,
            client.lost,
        )


def run(client: UdacityClient, seconds: float, free: bool) -> None:
    """Draw frames: every 20 ms, or whenever there is something to do."""
    until = time.perf_counter() + seconds
    due = time.perf_counter()
    while time.perf_counter() < until:
        if free:
            client.wait(0.1)
        else:
            due = max(due + FRAME_S, time.perf_counter() - FRAME_S)
            time.sleep(max(0.0, due - time.perf_counter()))
        client.frame()


def policy(window: int) -> Policy:
    """An untrained NAC-Steady of the Udacity agents' size: it costs the same."""
    torch.manual_seed(0)
    config = PolicyConfig(
        task="udacity",
        model="nac-steady",
        actions=(),
        window=window,
        repeat=1,
        gap_s=FRAME_S,
        height=160,
        width=320,
        crop=(60, 135),
        resize=(66, 200),
        yuv=True,
        activation="elu",
        channels=(24, 36, 48, 64, 64),
        kernels=(5, 5, 5, 3, 3),
        strides=(2, 2, 2, 1, 1),
        d_model=100,
        num_heads=20,
    )
    return Policy.new(config)


def serve(engine: str, window: int, in_flight: int) -> None:
    """Drive whatever connects until standard input is closed; prints its port, then what decisions took."""
    torch.set_num_threads(1)
    network = policy(window) if window else None
    took: list[float] = []
    if network is not None:
        for step in range(20):
            network.step(np.zeros((160, 320, 3), np.uint8), step * FRAME_S)
        network.reset()

    with UdacityEnv(port=0, engine=engine, in_flight=in_flight) as env:
        print(env.port, flush=True)
        Thread(target=lambda: (sys.stdin.read(), env.interrupt()), daemon=True).start()
        with suppress(DriveInterruptedError):
            while True:
                ended = False
                frame, info = env.reset()
                while not ended:
                    began = time.perf_counter()
                    if network is not None:
                        network.step(frame, info["t_s"], info["speed_mps"])
                    took.append(time.perf_counter() - began)
                    action = Action(round(info["speed_mps"] / 0.44704 * 1e4) / NUMBERS, 0.2, 0.0)
                    frame, _, _, ended, info = env.step(action)
    print(json.dumps({"decision_ms": float(np.median(took) * 1e3), "cpu_s": time.process_time()}), flush=True)


@contextmanager
def server(command: list[str], port: int | None = None) -> Iterator[tuple[int, dict[str, float]]]:
    """A server in a process of its own: its port, and what it says at its end."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said: dict[str, float] = {}
    try:
        assert process.stdin is not None and process.stdout is not None
        if port is None:
            yield int(process.stdout.readline()), said
            process.stdin.close()
            said |= json.loads(process.stdout.read())
        else:
            wait_for(port)
            yield port, said
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    """Wait until something listens."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        Event().wait(0.1)
    raise RuntimeError(f"nothing listens on port {port}")


def classic_python(folder: Path) -> str:
    """The interpreter of a new environment with what drive.py pins."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *CLASSIC], check=True)
    return python


def measure(command: list[str], port: int | None, seconds: float, free: bool) -> tuple[Measured, dict[str, float]]:
    """One row: a fresh server and a fresh simulator, each a process."""
    with server(command, port) as (found, said):
        arguments = [sys.executable, __file__, "--be-simulator", str(found), "--seconds", str(seconds)]
        done = subprocess.run(arguments + ["--free"] * free, capture_output=True, text=True, check=True)
        measured = Measured(**json.loads(done.stdout))
    return measured, said


def rows(seconds: float, classic: str) -> Iterator[tuple[str, str, str, Measured, float]]:
    """Server, policy, clock, what came of it, milliseconds of a decision."""
    plans = [(engine, window, flights) for engine in ("threads", "eventlet") for window, flights in PLAN]
    for free in (False, True):
        clock = "free" if free else "50 fps"
        for engine, window, flights in plans:
            what = f"NAC-Steady, window {window}" if window else "instantaneous"
            command = [sys.executable, __file__, "--serve", engine, str(window), str(flights)]
            measured, said = measure(command, None, seconds, free)
            yield f"{engine}, {flights} in flight", what, clock, measured, said["decision_ms"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        measured, _ = measure([classic, "-c", CLASSIC_DRIVE, str(port)], port, seconds, free)
        yield "classic drive.py", "instantaneous", clock, measured, float("nan")


PLAN = ((0, 1), (0, 2), (1, 1), (1, 2), (16, 1), (16, 2))
"""Windows (0: no network) and pictures in flight."""


def report(found: list[tuple[str, str, str, Measured, float]], seconds: float) -> str:
    """The page of results."""
    libraries = ", ".join(
        f"{name} {version(name)}"
        for name in ("python-socketio", "python-engineio", "simple-websocket", "Werkzeug", "eventlet", "torch")
    )
    lines = [
        "# The bridge to the Udacity simulator: how fast, how fresh",
        "",
        f"`python benchmarks/bridge.py --seconds {seconds:g}` on {os.cpu_count()} cores ({platform.machine()}, "
        f"{platform.system()}, Python {platform.python_version()}), load {os.getloadavg()[0]:.1f} at the end; "
        f"{libraries}. Beside it a classic drive.py with {', '.join(CLASSIC[:2])} and eventlet in its own environment.",
        "",
        "The simulator is emulated at byte level (no Unity build was run). *Age* is the time from a picture's capture "
        "to the frame in which its command is carried out; at 50 frames a second it cannot be below 20 ms. *In flight* "
        "is how many reports of the simulator may be under way: 1 is what `nacdrive drive` uses, for the second one "
        "carries the same picture and only waits; 2 answers both reports that the simulator begins with; the classic "
        "arrangement has 3. The networks are untrained: they cost the same.",
        "",
        "| clock | server | policy | commands/s | age p50 (ms) | age p99 (ms) | decision (ms) | drops |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, what, clock, measured, decision_ms in found:
        decision = "-" if np.isnan(decision_ms) else f"{decision_ms:.1f}"
        lines.append(
            f"| {clock} | {name} | {what} | {measured.steers:.1f} | {measured.p50_ms:.1f} | "
            f"{measured.p99_ms:.1f} | {decision} | {measured.drops} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--classic", help="interpreter of an environment with the old versions; made if not given")
    parser.add_argument("--free", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--be-simulator", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        engine, window, in_flight = options.serve
        return serve(engine, int(window), int(in_flight))
    if options.be_simulator:
        return print(json.dumps(vars(simulate(options.be_simulator, options.seconds, options.free))))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        classic = options.classic or classic_python(Path(folder) / "classic")
        for row in rows(options.seconds, classic):
            found.append(row)
            name, what, clock, measured, decision_ms = row
            print(f"{clock:6} {name:22} {what:22} {measured} decision {decision_ms:.1f} ms", flush=True)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(report(found, options.seconds), encoding="utf-8")
        print(f"written: {options.out}")


if __name__ == "__main__":
    main()
