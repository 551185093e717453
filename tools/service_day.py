"""Twelve hours of ``nacdrive drive --sim udacity`` as a service, as fast as it goes: memory, threads, open files.

    python tools/service_day.py                     # 12 hours at the policy's 12.5 decisions a second
    python tools/service_day.py --minutes 60        # as much of it as an hour gives

The command line itself serves, with the shipped policy and its page. Three viewers watch all the time, one of them
leaves and comes back, each asks what would be if; a person takes the wheel twice a minute, and what that person does
is recorded. The emulated simulator sends a picture as soon as the last is answered, and begins a new drive, over a new
connection, every ``--drive`` commands. A row a minute, of the service and of its processes; flat means that the last
quarter lies no more than ``SLACK`` above the second.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from simple_websocket import Client
from simple_websocket.errors import SimpleWebsocketError

from nacdrive.extras.simulator.client import Telemetry, UdacityClient

A_SECOND = 12.5
"""Decisions of the shipped policy, 0.08 s apart as in its training."""
HALF_A_DAY = int(12 * 3600 * A_SECOND)
WARM_UP_MINUTES = 10
SLACK = {"rss_kb": 1.03, "all_rss_kb": 1.03, "threads": 1.2, "files": 1.2}
VIEWERS = 3
ASK_EVERY_S, STAY_S, WHEEL_EVERY_S, WHEEL_S = 5.0, 60.0, 30.0, 3.0


def pictures(count: int = 64) -> list[bytes]:
    """JPEG pictures of the simulator's size, all different."""
    rng, made = np.random.default_rng(0), []
    for _ in range(count):
        buffer = BytesIO()
        small = rng.integers(0, 255, (20, 40, 3), np.uint8)
        Image.fromarray(small).resize((320, 160)).save(buffer, "JPEG", quality=75)
        made.append(buffer.getvalue())
    return made


def footprint(process: int) -> dict[str, int]:
    """Resident memory (kB), threads and open files of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    kb, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))  # type: ignore[index]
    return {"rss_kb": kb, "threads": threads, "files": len(os.listdir(f"/proc/{process}/fd"))}


def children(process: int) -> list[int]:
    """A process and all that it started."""
    below = [int(pid) for file in Path(f"/proc/{process}/task").glob("*/children") for pid in file.read_text().split()]
    return [process, *(pid for child in below for pid in children(child))]


class Drives:
    """The simulator: drive after drive, each over a connection of its own, until told to end."""

    def __init__(self, port: int, commands_a_drive: int) -> None:
        self.port, self.commands_a_drive = port, commands_a_drive
        self.commands = self.drives = self.lost = 0
        self.ending = threading.Event()
        self._pictures = pictures()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _telemetry(self) -> Telemetry:
        return Telemetry(0.0, 0.2, 10 + self.commands % 100 / 10, self._pictures[self.commands % len(self._pictures)])

    def _run(self) -> None:
        while not self.ending.is_set():
            before = self.commands
            with UdacityClient("127.0.0.1", self.port, self._telemetry, lambda *_: None) as car:
                while car.steers < self.commands_a_drive and not self.ending.is_set():
                    car.frame()
                    car.wait(0.002)
                    self.commands = before + car.steers
                self.lost += car.lost
            self.drives += 1

    def end(self) -> None:
        """End after the command under way."""
        self.ending.set()
        self._thread.join(20)


class Audience:
    """Viewers who ask what would be if, and a person who takes the wheel, until told to end."""

    def __init__(self, page: int) -> None:
        self.page, self.pictures, self.answers, self.wheel = page, 0, 0, 0
        self.ending = threading.Event()
        for number in range(VIEWERS):
            threading.Thread(target=self._again, args=(self._watch, number), daemon=True).start()
        threading.Thread(target=self._again, args=(self._drive, 0), daemon=True).start()

    def _again(self, visit: Callable[[int], None], number: int) -> None:
        while not self.ending.wait(0.2):
            with suppress(SimpleWebsocketError, OSError):
                visit(number)

    def _connect(self, path: str) -> Client:
        return Client(f"ws://127.0.0.1:{self.page}/{path}", headers={"Origin": "http://127.0.0.1"})

    def _watch(self, number: int) -> None:
        stream, questions = self._connect("stream"), self._connect("what-if")
        began = asked = time.monotonic()
        with closing(stream), closing(questions):
            while not self.ending.is_set() and (number or time.monotonic() < began + STAY_S):
                message = stream.receive(timeout=5)
                if not isinstance(message, bytes):
                    continue
                stream.send("ok")
                self.pictures += 1
                seq = re.search(rb'"seq":(\d+)', message[:100_000])
                if seq is not None and time.monotonic() > asked + ASK_EVERY_S:
                    asked = time.monotonic()
                    moment = {"seq": int(seq[1])}
                    questions.send(json.dumps({"id": self.pictures, "ask": "decide", "moment": moment, "edits": []}))
                while questions.receive(timeout=0) is not None:
                    self.answers += 1

    def _drive(self, _: int) -> None:
        with closing(self._connect("control")) as person:
            while not self.ending.wait(WHEEL_EVERY_S - WHEEL_S):
                person.send('{"do": "take"}')
                self.wheel += 1
                until_s = time.monotonic() + WHEEL_S
                while time.monotonic() < until_s:
                    person.send('{"keys": ["right", "up"]}')
                    time.sleep(0.1)
                person.send('{"do": "back"}')


def measure(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """Serve, drive, and note a row a minute; and whether anything of the service has failed meanwhile."""
    command = [sys.executable, "-m", "nacdrive", "drive", "--sim", "udacity", "--model", given.model, "--port", "0"]
    command += ["--page-port", "0", "--pace", "0", "--kept-mb", str(given.kept_mb), "--allow-control"]
    output = given.out.with_suffix(".log")
    corrections = tempfile.TemporaryDirectory()
    with output.open("w") as log:
        folder = str(Path(corrections.name) / "corrections")
        server = subprocess.Popen([*command, "--corrections", folder], stdout=log, stderr=log)
    ports: list[str] = []
    while len(ports) < 2:
        time.sleep(0.5)
        if server.poll() is not None:
            raise SystemExit(f"the service ended: see {output}")
        ports = re.findall(r"(?:watch at http://[\d.]+:|on port )(\d+)", output.read_text())
    drives, audience = Drives(int(ports[1]), given.drive), Audience(int(ports[0]))
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    try:
        while drives.commands < given.commands and time.monotonic() - began < given.minutes * 60:
            time.sleep(60)
            row = {"minutes": round((time.monotonic() - began) / 60, 1), "commands": drives.commands}
            row |= {"drives": drives.drives, "lost": drives.lost, "pictures": audience.pictures}
            row |= {"answers": audience.answers, "wheel": audience.wheel} | footprint(server.pid)
            family = sum(footprint(pid)["rss_kb"] for pid in children(server.pid))
            rows.append(row | {"all_rss_kb": family, "load": os.getloadavg()[0]})
            with given.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    except KeyboardInterrupt:
        print("stopped")
    finally:
        audience.ending.set()
        drives.end()
        server.send_signal(signal.SIGTERM)
        status, lines = server.wait(120), output.read_text().splitlines()
        failed = [line for line in lines if "has failed" in line]
        print(f"the service ended with {status}: {lines[-1]}", *failed, sep="\n")
        corrections.cleanup()
    return rows, bool(failed)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="nac_steady.pt")
    options.add_argument("--commands", type=int, default=HALF_A_DAY)
    options.add_argument("--minutes", type=float, default=24 * 60)
    options.add_argument("--drive", type=int, default=5_000, help="commands of a drive")
    options.add_argument("--kept-mb", type=int, default=32, help="pictures kept for questions of what if")
    options.add_argument("--out", type=Path, default=Path("service_day.jsonl"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows, failed = measure(options.parse_args())
    rows = [row for row in rows if row["minutes"] > WARM_UP_MINUTES]
    quarter = len(rows) // 4
    if not quarter:
        print(f"too short to say anything: at least {WARM_UP_MINUTES + 5} minutes.")
        return int(failed)
    growing = []
    for name, slack in SLACK.items():
        second = max(row[name] for row in rows[quarter : 2 * quarter])
        last = max(row[name] for row in rows[-quarter:])
        print(f"{name}: at most {second} in the second quarter after {WARM_UP_MINUTES} minutes, {last} in the last")
        growing += [name] if last > slack * second else []
    hours = rows[-1]["commands"] / A_SECOND / 3600
    print(f"{rows[-1]['commands']} commands: {hours:.1f} hours of driving at {A_SECOND} a second")
    print(f"grows: {', '.join(growing)}" if growing else "flat")
    return int(failed or bool(growing))


if __name__ == "__main__":
    sys.exit(main())
