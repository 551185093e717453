"""``pytest --cpu-times 30``: which tests cost the most CPU time, their processes included.

The wall clock says what the machine was doing, and a test's own process says nothing of the commands, workers and
browsers that it starts. So the times of all living descendants are read after each test; what a descendant has waited
for is in its own sums. The first test of a worker is charged with the worker's imports and its collection.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROPERTY = "cpu_s"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", type=int, metavar="N", help="print the N tests that cost the most CPU time")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu-times"):
        config.pluginmanager.register(CpuTimes(config.getoption("--cpu-times")), "cpu-times")


def tree_cpu_s() -> float:
    """CPU seconds that this process and its descendants have taken, those that were waited for included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return sum(os.times()[:4])
    total, waiting = 0, [Path("/proc/self")]
    while waiting:
        process = waiting.pop()
        try:
            # A process may have any name, with brackets too.
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            children = [pid for file in process.glob("task/*/children") for pid in file.read_text().split()]
        except OSError:
            continue
        total += sum(int(x) for x in fields[11:15])
        waiting += [Path("/proc") / pid for pid in children]
    return total / TICKS_PER_S


class CpuTimes:
    """Measures where tests run, prints where the run is told of; with xdist these are different processes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seconds: dict[str, float] = {}
        self.before = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        if call.when == "teardown":
            now = tree_cpu_s()
            item.user_properties.append((PROPERTY, now - self.before))
            self.before = now
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.seconds[report.nodeid] = dict(report.user_properties).get(PROPERTY, 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        rooms: dict[str, float] = defaultdict(float)
        for test, seconds in self.seconds.items():
            rooms["/".join(test.split("::")[0].split("/")[:2])] += seconds
        write(f"{sum(self.seconds.values()):8.1f} CPU-s: {len(self.seconds)} tests with their processes")
        for room, seconds in sorted(rooms.items(), key=lambda x: -x[1]):
            write(f"{seconds:8.1f} {room}")
        write("")
        for test, seconds in sorted(self.seconds.items(), key=lambda x: -x[1])[: self.count]:
            write(f"{seconds:8.1f} {test}")
