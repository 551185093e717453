"""Fixtures that several rooms share."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.helpers.forkserver import AS_KNOWN_HERE, fork_server

pytest_plugins = ["tests.helpers.cpu_times"]

# How long an example takes is the machine's business, and no test's. Every day the same few, at night others.
settings.register_profile("daily", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("nightly", deadline=None)

# A job that a shell starts in the background ignores SIGINT, and so would every command that the tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads that wait for the next small picture or product take more time than they save.
for threads in ("OMP_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"):
    os.environ.setdefault(threads, "1")

# All workers of a test process are forked from one server: what takes seconds to import is imported there once, and not
# by each of some hundred workers. These are what they drive with.
DRIVING = (
    "gymnasium.envs.box2d.car_racing",
    "nacdrive.envs.udacity_track.env",
    "nacdrive.nac.kernels.numba.compiled",
    "nacdrive.rollout.evaluate",
    "nacdrive.rollout.record",
)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("daily" if "not nightly" in config.option.markexpr else "nightly")
    # Modules and items stay to the end: to look for garbage among them is a tenth of what collecting them takes. As
    # often as Python looks by itself, it is a thirtieth of what the tests take.
    gc.disable()
    gc.set_threshold(20_000)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Half as many processes again as processors, and at least two more: a third of the time the tests wait, for a car
    to stand, a socket to fall silent, a page to be drawn.
    """
    processors = yield
    return processors + max(2, processors // 2)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()
    if torch := sys.modules.get("torch"):
        # For a device that is missing each seed is kept, with the text of the whole stack, until there is one.
        for device in (torch.cuda, torch.xpu, torch.mtia):
            if not device.is_available():
                device.manual_seed_all = lambda seed: None
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
        return  # it runs no tests itself
    from nacdrive.extras.bench.grid import PRELOADED

    # Of a few tests, none may need it.
    if AS_KNOWN_HERE and hasattr(session.config, "workerinput") and len(session.items) > 500:
        # pyarrow asks for pandas when the first episode is written.
        fork_server([*PRELOADED, *DRIVING, "pandas"])
    else:
        multiprocessing.set_forkserver_preload([*PRELOADED, *DRIVING])


@pytest.fixture(autouse=True)
def shown_progress() -> Iterator[None]:
    """A command line with -q is one test's own: its process runs others after it."""
    yield
    from nacdrive.common.progress import set_quiet

    set_quiet(quiet=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Nobody reads them, and they are most of what a worker writes and xdist reads, three times a test.
    report.keywords = {}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if "not nightly" in config.option.markexpr:
        terminalreporter.write_line("Left out: tests marked nightly (make nightly) and soak (pytest -m soak).")


# Playwright's own list gives way to this one and is repeated in it. What is added are pages of the address bar: each
# new window loads them, and that costs more than all of the rest of it.
CHROMIUM_LEFT_OUT = (
    "AimEnabled",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
)
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(CHROMIUM_LEFT_OUT)}",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real Chromium, one for all pages of a process; without one their tests skip and say why."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'nacdrive[dev]'")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def idle_pages() -> list[Any]:
    """Empty pages for the next test: a new one costs Chromium a process."""
    return []


def is_fault(line: Any) -> bool:
    """Whether a line of the console is one; that a test reads canvases back often is no fault of the page, nor is a
    connection that Chromium kept from an earlier server on the same port: what needs it waits in vain, and fails.
    """
    harmless = "willReadFrequently", "ERR_SOCKET_NOT_CONNECTED"
    return line.type in ("error", "warning") and not any(words in line.text for words in harmless)


@pytest.fixture
def open_page(browser: Any, idle_pages: list[Any], request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens pages that collect what goes wrong on them in ``page.faults``.

    Options are those of a browser's context, which is then the page's own; ``alone`` asks for that too.
    """
    kept, contexts = [], []

    def opened(url: str, *, alone: bool = False, **options: Any) -> Any:
        shared = url.startswith("http:") and not alone and options.keys() <= {"viewport"}
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        if shared and idle_pages:
            page = idle_pages.pop()
            page.set_viewport_size(options["viewport"])
        else:
            context = browser.new_context(**options)
            context.set_default_timeout(120_000)
            page = context.new_page()
            page.on(
                "console",
                lambda line: page.faults.append(line.text) if is_fault(line) else None,
            )
            page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.faults = []
        (kept if shared else contexts).append(page if shared else page.context)
        page.goto(url)
        # The page puts itself together when it knows what is served.
        page.wait_for_selector("main")
        return page

    failed = request.session.testsfailed
    yield opened
    for page in kept:
        if request.session.testsfailed > failed or len(page.context.pages) > 1 or page.is_closed():
            contexts.append(page.context)
        else:
            # A later server may have the same port.
            page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            page.goto("about:blank")
            idle_pages.append(page)
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a task's made-up data, generated once for all processes; all lie beside each other, and nobody
    writes.
    """
    import fcntl

    from nacdrive.datasets.synthetic import generate

    root = shared_folder(tmp_path_factory, "made-up")

    def folder_of(name: str) -> Path:
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            generate(name, root / name)
        return root / name

    return folder_of


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """One folder of all processes of a run."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real, untrained policy: what is tested with it is the loop around it."""
    import torch

    from nacdrive.envs.carracing.env import BRAKE, STEERING, THROTTLE
    from nacdrive.models import Policy, PolicyConfig, save_policy

    torch.manual_seed(0)
    config = PolicyConfig(
        task="carracing",
        model="mha",
        actions=tuple(zip(STEERING, THROTTLE, BRAKE, strict=True)),
        window=2,
        channels=(4, 4, 4),
        d_model=16,
        num_heads=4,
        dense=8,
    )
    path = tmp_path_factory.mktemp("model") / "little.pt"
    save_policy(Policy.new(config, "little"), path, {})
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The file of a PPO expert with random weights."""
    import torch

    from nacdrive.models.agents.network import PolicyNet, save_policy
    from tests.helpers.expert_cases import ABOUT

    torch.set_num_threads(1)
    torch.manual_seed(0)
    save_policy(tmp_path / "policy.pt", PolicyNet(), ABOUT)
    return tmp_path / "policy.pt"
