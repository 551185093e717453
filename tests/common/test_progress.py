from __future__ import annotations

import os
import sys

import pytest
from rich.progress import DownloadColumn

from nacdrive.cli import main as cli
from nacdrive.common.progress import progress_bar, progress_console, resumable, set_quiet


def show() -> None:
    with progress_bar() as bar:
        task = bar.add_task("driving", total=2, state="track 7")
        bar.console.print("seed 1: [done]")
        bar.advance(task, 2)
    with progress_bar(DownloadColumn()) as bar:
        bar.update(bar.add_task("mnist", total=None), total=10, completed=10)


@pytest.mark.parametrize("terminal", [False, True])
def test_bars_are_for_terminals_and_on_stderr_and_lines_for_all(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    show()
    out, err = capsys.readouterr()
    assert out == "" and "seed 1: [done]" in err
    assert all((word in err) is terminal for word in ("track 7", "mnist", "10/10"))
    set_quiet(quiet=True)
    show()
    with progress_console().status("reading"):
        pass
    assert capsys.readouterr() == ("", "")


def test_what_is_stopped_says_what_is_kept_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = 0

    def work(arguments: list[str]) -> int:
        nonlocal done
        with resumable(lambda: f"{done} of 5 rounds are kept in runs/x"):
            done = 2
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "dispatch", work)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    sentence = "nacdrive: stopped; 2 of 5 rounds are kept in runs/x: the same command with --resume goes on."
    assert capsys.readouterr().err == f"\n{sentence}\n"


@pytest.mark.parametrize("line", ["-q eval", "eval --quiet", "recordings -q info"])
def test_every_verb_takes_quiet(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(cli, "parse", lambda config_class, program, arguments: (program, arguments))
    monkeypatch.setattr(cli, "module_entry", lambda *names: (object, lambda config: calls.append(config), names[1]))
    assert cli.dispatch(line.split()) == 0 and "NACDRIVE_QUIET" in os.environ
    assert calls[0][1] == []
    assert cli.dispatch(["eval"]) == 0 and "NACDRIVE_QUIET" not in os.environ
    assert "--quiet" in cli.usage()
