"""A day of ``nacdrive drive --sim udacity`` as a service, as fast as it goes: memory, threads and open files over time.

    python tools/service_day.py --commands 1300000     # a day at 15 decisions a second
    python tools/service_day.py --minutes 60           # as much of it as an hour gives

The command line itself serves, with the shipped policy, its page and a viewer who comes and goes; the emulated
simulator sends a picture as soon as the last is answered, and begins a new drive, over a new connection, every
``--drive`` commands. A row a minute; flat means that the last quarter does not lie above the second.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nacdrive.envs.udacity.client import Telemetry, UdacityClient

A_DAY = 86_400 * 15
"""Commands of a day: the shipped policy decides 15 times a second."""


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


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Serve, drive, and note a row a minute."""
    command = [sys.executable, "-m", "nacdrive", "drive", "--sim", "udacity", "--model", given.model, "--port", "0"]
    said = given.out.with_suffix(".log")
    with said.open("w") as log:
        server = subprocess.Popen([*command, "--page-port", "0", "--pace", "0"], stdout=log, stderr=log)
    found: list[str] = []
    while len(found) < 2:
        time.sleep(0.5)
        if server.poll() is not None:
            raise SystemExit(f"the service ended: see {said}")
        found = re.findall(r"(?:watch at http://[\d.]+:|on port )(\d+)", said.read_text())
    page, port = found[:2]
    drives = Drives(int(port), given.drive)
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    try:
        while drives.commands < given.commands and time.monotonic() - began < given.minutes * 60:
            time.sleep(60)
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{page}/", timeout=20) as answer:
                answer.read()
            row = {"minutes": round((time.monotonic() - began) / 60, 1), "commands": drives.commands}
            rows.append(row | {"drives": drives.drives, "lost": drives.lost} | footprint(server.pid))
            with given.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    except KeyboardInterrupt:
        print("stopped")
    finally:
        drives.end()
        server.send_signal(signal.SIGTERM)
        print(f"the service ended with {server.wait(30)}: {said.read_text().splitlines()[-1]}")
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="nac_steady.pt")
    options.add_argument("--commands", type=int, default=A_DAY)
    options.add_argument("--minutes", type=float, default=24 * 60)
    options.add_argument("--drive", type=int, default=5_000, help="commands of a drive")
    options.add_argument("--out", type=Path, default=Path("service_day.jsonl"))
    rows = measure(options.parse_args())
    quarter = len(rows) // 4
    if not quarter:
        return
    for name in ("rss_kb", "threads", "files"):
        second = max(row[name] for row in rows[quarter : 2 * quarter])
        last = max(row[name] for row in rows[-quarter:])
        print(f"{name}: at most {second} in the second quarter, {last} in the last")
    print(f"{rows[-1]['commands']} commands: {rows[-1]['commands'] / A_DAY:.2f} days at 15 a second")


if __name__ == "__main__":
    main()
