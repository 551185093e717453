"""What doctor says of the machine's readiness for the Udacity simulator."""

from __future__ import annotations

import socket
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from threading import Thread

import pytest

from nacdrive.common.errors import UserError
from nacdrive.envs.udacity import UdacityEnv
from nacdrive.extras.simulator import checks


def test_a_free_port_is_free() -> None:
    assert "is free" in checks.check_port("127.0.0.1", 0)


def test_another_nacdrive_is_recognised() -> None:
    with UdacityEnv(port=0) as env, pytest.raises(UserError, match="another 'nacdrive drive"):
        checks.check_port("127.0.0.1", env.port)


def test_another_server_is_told_from_a_silent_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match="end the program that has it"):
            checks.check_port("127.0.0.1", port)
        # The first visitor was never answered; the second one is.
        server.accept()[0].close()

        def answer() -> None:
            connection = server.accept()[0]
            connection.recv(1000)
            connection.sendall(b"HTTP/1.0 404 NOT FOUND\r\n\r\n")
            connection.close()

        thread = Thread(target=answer)
        thread.start()
        with pytest.raises(UserError, match="perhaps a drive"):
            checks.check_port("127.0.0.1", port)
        thread.join()


def test_the_link_is_tried_with_an_emulated_simulator() -> None:
    assert "commands a second" in checks.check_link()


@pytest.mark.parametrize("old", ["4.6.0", "5.2.1"])
def test_a_pinned_old_server_is_named(monkeypatch: pytest.MonkeyPatch, old: str) -> None:
    real = checks.version
    monkeypatch.setattr(checks, "version", lambda name: old if name == "python-socketio" else real(name))
    with pytest.raises(UserError, match=f"python-socketio {old} is too old"):
        checks.check_server_versions()


def test_a_missing_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(checks, "version", version)
    with pytest.raises(UserError, match="is missing"):
        checks.check_server_versions()


@pytest.mark.parametrize(("text", "numbers"), [("5.11.4", (5, 11, 4)), ("4.9.0rc1", (4, 9)), ("x", ())])
def test_versions_compare_by_their_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert checks.release(text) == numbers


def test_the_oldest_versions_that_serve_are_those_of_the_package() -> None:
    """What pip takes is never older, and no older one is asked for than pip would take."""
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    taken = dict(line.split(">=") for lines in extras.values() for line in lines if ">=" in line)
    for name, lowest in checks.LOWEST.items():
        if name.lower() in taken:
            version = checks.release(taken[name.lower()])
            assert version >= lowest and version[0] == lowest[0], name
    assert all(number >= 0 for lowest in checks.LOWEST.values() for number in lowest)
    assert checks.LOWEST["eventlet"] == (0, 40)
