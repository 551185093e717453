"""What watching costs the driver: real NAC decisions on real CarRacing frames, in real time, with up to 5 viewers.

The drive's thread is timed by its own CPU clock, so that other work on the machine does not count. Viewers are
processes of their own that take every message and acknowledge it, as the page does.

    python benchmarks/live.py [--seconds 20] [--out FILE]
    python benchmarks/live.py --page [--times 5]    # the wait for the page itself, in a Chromium
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.paths import find_model
from nacdrive.drivers.tick import Tick
from nacdrive.envs.carracing.env import ACTIONS, BRAKE, STEERING, THROTTLE, make_carracing
from nacdrive.extras.arena.arena import Arena
from nacdrive.extras.arena.card import ArenaCard
from nacdrive.extras.arena.contestant import Contestant
from nacdrive.extras.what_if import WhatIfCard, WhatIfSource
from nacdrive.extras.what_if.what_if import Simulation, WhatIf
from nacdrive.models import load_policy
from nacdrive.models.config import PolicyConfig
from nacdrive.models.policy import Policy
from nacdrive.rollout.drive import Drive
from nacdrive.viz.saliency import GradCam
from nacdrive.web import LiveServer
from nacdrive.web.protocol import message, pack
from nacdrive.web.stream import columns

PERIOD_S = 0.08
"""CarRacing's decisions: every fourth of 50 frames a second."""


def some_policy() -> Policy:
    """The shipped policy, or an untrained one of the same size: it costs the same."""
    try:
        return load_policy(find_model("nac_steady.pt", "carracing"))
    except UserError:
        torch.manual_seed(0)
        actions = tuple(zip(STEERING, THROTTLE, BRAKE, strict=True))
        return Policy.new(PolicyConfig("carracing", "nac-steady", actions, window=16), "untrained nac-steady")


WATCH = """
import json, struct, sys, threading
from simple_websocket import Client, ConnectionClosed

def watch(seen, number):
    socket = Client(f"ws://127.0.0.1:{sys.argv[1]}/stream", headers={"Origin": "http://127.0.0.1"})
    try:
        while True:
            message = socket.receive()
            if isinstance(message, bytes):
                (length,) = struct.unpack_from("<I", message)
                seen[number] += bool(json.loads(message[4 : 4 + length])["ticks"])
                socket.send("a")
    except ConnectionClosed:
        pass

seen = [0] * int(sys.argv[2])
viewers = [threading.Thread(target=watch, args=(seen, number)) for number in range(len(seen))]
for viewer in viewers:
    viewer.start()
for viewer in viewers:
    viewer.join()
print(min(seen))
"""
"""Viewers in a process of their own: each takes every message, acknowledges it, and counts frames until the goodbye."""


ASK = """
import json, sys, time
from simple_websocket import Client, ConnectionClosed

def receive(number):
    while True:
        answer = json.loads(socket.receive())
        if answer["id"] == number and (answer.get("done") or answer.get("error")):
            return answer

stream = Client(f"ws://127.0.0.1:{sys.argv[1]}/stream", headers={"Origin": "http://127.0.0.1"})
socket = Client(f"ws://127.0.0.1:{sys.argv[1]}/what-if", headers={"Origin": "http://127.0.0.1"})
edits = [{"kind": "mute", "head": 1}, {"kind": "paint", "left": 0, "top": 0.2, "right": 0.4, "bottom": 0.6}]
took, number, seq = {"decide": [], "occlusion": [], "ghost": []}, 0, 0
try:
    while True:
        message = stream.receive(timeout=0)
        while message is not None:
            if isinstance(message, bytes):
                head = json.loads(message[4 : 4 + int.from_bytes(message[:4], "little")])
                seq = max([seq, *(tick["seq"] for tick in head["ticks"])])
                stream.send("a")
            message = stream.receive(timeout=0)
        if seq < 30:
            time.sleep(0.02)
            continue
        ask = "ghost" if number % 40 == 39 else "occlusion" if number % 10 == 9 else "decide"
        number += 1
        began = time.perf_counter()
        body = {"id": number, "ask": ask, "moment": {"seq": seq}, "edits": edits[: 1 + number % 2]}
        socket.send(json.dumps(body))
        answer = receive(number)
        if "error" in answer:
            print(ask, answer["error"], file=sys.stderr)
        else:
            took[ask].append(time.perf_counter() - began)
        time.sleep(0.25)
except ConnectionClosed:
    pass
print(json.dumps(took))
"""
"""A viewer that asks what if all the while: four decisions a second, and in turn maps and ghosts of ten seconds."""


class Spent:
    """Seconds of the drive's own thread and of the whole process, by purpose."""

    def __init__(self) -> None:
        self.by: dict[str, float] = {}

    def __call__(self, name: str, began: float) -> None:
        self.by[name] = self.by.get(name, 0.0) + time.thread_time() - began


def drive(
    policy: Policy, server: LiveServer, seconds: float, neurons_every: int, saliency_every: int
) -> dict[str, float]:
    """Drive in real time; CPU seconds per decision by purpose, and of the server's threads."""
    world = make_carracing()
    frame, info = world.reset(seed=4_000_000)
    policy.reset()
    cam = GradCam(policy) if saliency_every else None
    spent, count, total, episode, began_at = Spent(), 0, 0.0, 0, 0
    process, thread = time.process_time(), time.thread_time()
    started = time.perf_counter()
    while (now := time.perf_counter()) - started < seconds:
        began = time.thread_time()
        action = policy.step(frame, info["t_s"])
        spent("decide", began)
        began = time.thread_time()
        watched = server.viewers > 0
        states = policy.neurons() if watched and neurons_every and count % neurons_every == 0 else {}
        spent("neurons", began)
        began = time.thread_time()
        looked = cam() if watched and cam is not None and count % saliency_every == 0 else None
        spent("saliency", began)
        began = time.thread_time()
        server.publish(
            Tick(
                episode=episode,
                seed=4_000_000,
                step=count - began_at,
                t_s=info["t_s"],
                frame=frame,
                action=action,
                episode_return=total,
                speed_mps=info["speed_mps"],
                decision_ms=3.0,
                budget_ms=80.0,
                neurons=states,
                saliency=looked,
            )
        )
        spent("publish", began)
        began = time.thread_time()
        frame, reward, terminated, truncated, info = world.step(int(action.choice or 0))
        spent("simulate", began)
        total += float(reward)
        if terminated or truncated:
            frame, info = world.reset(seed=4_000_000)
            policy.reset()
            # A ghost drives an episode once more, from its own start on.
            total, episode, began_at = 0.0, episode + 1, count + 1
        count += 1
        time.sleep(max(0.0, PERIOD_S - (time.perf_counter() - now)))
    own = time.thread_time() - thread
    result = {name: value / count * 1e3 for name, value in spent.by.items()}
    return {**result, "server": (time.process_time() - process - own) / count * 1e3, "decisions": count}


def load_what_if() -> WhatIf:
    """In the process that answers."""
    return WhatIf(some_policy(), Simulation(lambda seed: make_carracing()))


def measure(
    viewers: int,
    seconds: float,
    neurons_every: int,
    saliency_every: int,
    policy: Policy,
    asked: dict[str, list[float]] | None = None,
) -> dict[str, float]:
    """One row of the table; with ``asked`` the viewer asks what if, and the seconds until the answers go there."""
    audience = None
    source = WhatIfSource(load_what_if, policy.config.window, ghost=True)
    with LiveServer(
        port=0, circuit=policy.circuit(), choices=ACTIONS, cards=[WhatIfCard.of_drive(source, kept_mb=128)]
    ) as server:
        if viewers:
            script = WATCH if asked is None else ASK
            command = [sys.executable, "-c", script, str(server.port), str(viewers)]
            audience = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 60
            while server.viewers < viewers and time.monotonic() < deadline:
                time.sleep(0.1)
        row = drive(policy, server, seconds, neurons_every, saliency_every)
        time.sleep(0.5)
    row["frames seen"] = float("nan")
    if audience is not None:
        said = audience.communicate(timeout=60)[0]
        if asked is None:
            row["frames seen"] = int(said) / row["decisions"]
        else:
            asked.update(json.loads(said))
    return row


def message_bytes(policy: Policy, decisions: int = 160) -> float:
    """Mean size of a live message in bytes, with neurons at every 2nd decision and saliency at every 8th."""
    world, cam, sizes = make_carracing(), GradCam(policy), []
    frame, info = world.reset(seed=4_000_000)
    policy.reset()
    for step in range(decisions):
        action = policy.step(frame, info["t_s"])
        seen = Tick(
            0,
            0,
            step,
            info["t_s"],
            frame,
            action,
            neurons=policy.neurons() if step % 2 == 0 else {},
            saliency=cam() if step % 8 == 0 else None,
        )
        numbers = tuple(columns(seen, step + 1, info["t_s"], 0, 0.0).values())
        sizes.append(len(message({"lanes": [{"rows": [numbers], "events": []}]}, [pack(seen, step + 1, numbers)])))
        frame, _, _, _, info = world.step(int(action.choice or 0))
    return float(np.mean(sizes))


def measure_arena(seconds: float) -> list[tuple[str, float, float]]:
    """CPU milliseconds that the arena's main process spends per decision of a contestant: on telling them how far they
    may drive, hearing them, and showing them; and the share of that in one core while all decide every 80 ms.
    """
    model = find_model("nac_steady.pt", "carracing")
    options = {"max_frames": int(seconds * 50)}
    field = [Contestant(name, Drive(model=model, options=options)) for name in ("one", "two")]
    field.append(Contestant("ppo", Drive(driver="ppo", options=options)))
    found = []
    with Arena(field) as arena:
        for viewers in (0, 1, 5):
            card = ArenaCard()
            with LiveServer(port=0, names=[one.name for one in field], cards=[card]) as server:
                command = [sys.executable, "-c", WATCH, str(server.port), str(viewers)]
                audience = subprocess.Popen(command, stdout=subprocess.DEVNULL) if viewers else None
                deadline = time.monotonic() + 60
                while server.viewers < viewers and time.monotonic() < deadline:
                    time.sleep(0.1)
                began = time.process_time()
                rows = arena.drive(0, 4_000_000, audience=[card], realtime=True)
                spent = time.process_time() - began
            if audience is not None:
                audience.wait(60)
            decisions = sum(row["decisions"] for row in rows.values())
            simulated = max(row["simulated_s"] for row in rows.values())
            found.append((f"{viewers} viewer{'s' * (viewers != 1)}", spent / decisions * 1e3, spent / simulated))
    return found


def publish_microseconds(policy: Policy) -> tuple[float, float]:
    """Median and 99th percentile of ``publish`` alone, with nobody watching."""
    frame = np.zeros((96, 96, 3), dtype=np.uint8)
    policy.reset()
    action = policy.step(frame, 0.0)
    tick = Tick(0, 0, 0, 0.0, frame, action, neurons=policy.neurons())
    with LiveServer(port=0) as server:
        spent = []
        for _ in range(2000):
            began = time.perf_counter()
            server.publish(tick)
            spent.append(time.perf_counter() - began)
    return float(np.median(spent) * 1e6), float(np.percentile(spent, 99) * 1e6)


SLOW_LINE = {"offline": False, "latency": 300, "downloadThroughput": 50_000, "uploadThroughput": 50_000}
VERB = """() => {
  const shown = /[a-z]/i.test(document.getElementById("verb")?.textContent ?? "");
  window.firstVerb ??= shown ? performance.now() : undefined;
  if (!window.firstVerb) requestAnimationFrame(window.look);
}"""


def measure_page(times: int) -> None:
    """Print the seconds until a Chromium shows the first decision of ``nacdrive drive``, on a line of 50 kB/s with 300
    ms of latency and on none; and until it shows the answers to the first two questions of *What if*.
    """
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "nacdrive", "drive", "--env", "carracing", "--page-port", "0", "--episodes", "99"]
    waits: dict[str, list[float]] = {}
    for k in range(times):
        drive = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert drive.stdout is not None
        url = next(line.split()[-1] for line in drive.stdout if "http://" in line)
        try:
            with sync_playwright() as play:
                chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                for line in ("quick line", "50 kB/s and 300 ms"):
                    page = chromium.new_page(viewport={"width": 1280, "height": 800})
                    sent: list[int] = []
                    devtools = page.context.new_cdp_session(page)
                    devtools.send("Network.enable")
                    devtools.on("Network.loadingFinished", lambda e, sent=sent: sent.append(e["encodedDataLength"]))
                    if line != "quick line":
                        devtools.send("Network.emulateNetworkConditions", SLOW_LINE)
                    page.add_init_script(f"(window.look = {VERB})()")
                    page.goto(url, wait_until="commit")
                    while not (first := page.evaluate("window.firstVerb")):
                        page.wait_for_timeout(20)
                    waits.setdefault(f"first decision, {line}", []).append(first)
                    files, size = len(sent), sum(sent) / 1e3
                    print(f"{k + 1}: {line}: {first:.0f} ms, {files} files of {size:.0f} kB before, {os.getloadavg()}")
                    if line == "quick line":
                        page.wait_for_timeout(8000)
                        page.keyboard.press("i")
                        for edits, name in ((0, "first question"), (1, "second question")):
                            page.evaluate("document.getElementById('what-if').dataset.tookMs = ''")
                            if edits:
                                page.get_by_role("button", name="Mute head 2").click()
                            while not (took := page.evaluate("document.getElementById('what-if').dataset.tookMs")):
                                page.wait_for_timeout(20)
                            waits.setdefault(name, []).append(float(took))
                    page.close()
                chromium.close()
        finally:
            drive.kill()
            drive.wait()
    for name, ms in waits.items():
        print(f"{name}: median {np.median(ms):.0f} ms, {min(ms):.0f} to {max(ms):.0f} ms of {len(ms)}")


def report(
    rows: list[tuple[str, dict[str, float]]],
    publish: tuple[float, float],
    policy: Policy,
    seconds: float,
    asked: dict[str, list[float]],
    arena: list[tuple[str, float, float]],
    size: float,
) -> str:
    """The page of results."""
    lines = [
        "# What watching costs the driver",
        "",
        f"`python benchmarks/live.py --seconds {seconds:g}`: {policy.name} (window {policy.config.window}) drives "
        "CarRacing-v3 in real time, one decision every 80 ms; milliseconds of CPU time per decision, one torch thread, "
        "on "
        f"{os.cpu_count()} cores ({platform.machine()}, load {os.getloadavg()[0]:.1f} at the end).",
        "",
        "| watching | decide | neurons | saliency | publish | encode, send | loop / 80 ms | all / 80 ms | frames |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows:
        loop = (row["neurons"] + row["saliency"] + row["publish"]) / 1e3 / PERIOD_S
        everything = loop + row["server"] / 1e3 / PERIOD_S
        seen = "-" if np.isnan(row["frames seen"]) else f"{row['frames seen']:.0%}"
        lines.append(
            f"| {name} | {row['decide']:.2f} | {row['neurons']:.2f} | {row['saliency']:.2f} | {row['publish']:.3f} | "
            f"{row['server']:.2f} | {loop:.1%} | {everything:.1%} | {seen} |"
        )
    lines += [
        "",
        f"`publish` itself: {publish[0]:.1f} us median, {publish[1]:.1f} us at the 99th percentile, whatever the "
        "viewers do. Frames are encoded once for all viewers, in the thread of the viewer that asks first, and not at "
        "all when nobody looks; nor are neurons and saliency read then. *loop* is what the drive's own thread spends "
        "on being watched; *all* adds the server's threads, which run beside it (target: under 5 %). The first three "
        "rows are `nacdrive drive` as it is: neurons at every 2nd decision, saliency at every 8th.",
        "",
        "*What if* is answered in a process of its own (`nice 5`), which is in none of these columns; in the last row "
        "the viewer asks all the while. From question to answer, over the wire, "
        + ", ".join(
            f"{name}: median {np.median(took) * 1e3:.0f} ms, slowest {max(took) * 1e3:.0f} ms of {len(took)}"
            for name, took in asked.items()
            if took
        )
        + ". A ghost drives the past once more and then twice ten seconds (once for a moment).",
        "",
        f"A message is {size / 1e3:.1f} kB on average, {size / PERIOD_S / 1e3:.0f} kB a second: five minutes of *Hold* "
        f"are {300 * size / PERIOD_S / 1e6:.0f} MB in the browser, outside of its JavaScript heap (96 at most).",
        "",
        "*Arena*: three contestants (nac_steady twice, ppo), a process each, one decision every 80 ms. CPU time of the "
        "main process (clock, pipes, page) per decision of a contestant, and in a simulated second for all: "
        + ", ".join(f"{name}: {each:.2f} ms, {1e3 * second:.0f} ms" for name, each, second in arena)
        + ".",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--page", action="store_true", help="measure the page in a Chromium, and nothing else")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    if options.page:
        return measure_page(options.times)
    torch.set_num_threads(1)
    policy = some_policy()
    plan = [
        ("nobody", 0, 2, 8),
        ("1 viewer", 1, 2, 8),
        ("5 viewers", 5, 2, 8),
        ("1 viewer, neurons every decision, saliency every 4th", 1, 1, 4),
        ("1 viewer, no neurons, no saliency", 1, 0, 0),
    ]
    rows = []
    asked: dict[str, list[float]] = {}
    for name, viewers, neurons_every, saliency_every in plan:
        rows.append((name, measure(viewers, options.seconds, neurons_every, saliency_every, policy)))
        print(name, {key: round(value, 3) for key, value in rows[-1][1].items()}, flush=True)
    rows.append(("1 viewer, who asks what if", measure(1, 2 * options.seconds, 2, 8, policy, asked)))
    found = measure_arena(options.seconds)
    written = report(rows, publish_microseconds(policy), policy, options.seconds, asked, found, message_bytes(policy))
    if options.out is None:
        print(written)
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    # What people have written under other headings stays.
    before = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    options.out.write_text(written + before[before.find("\n## ") :] * ("\n## " in before), encoding="utf-8")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
