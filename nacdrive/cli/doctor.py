"""``nacdrive doctor``: what works on this machine, and how to mend what does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nacdrive.common.errors import UserError


@dataclass(frozen=True)
class DoctorConfig:
    """Say what works on this machine, and how to mend what does not."""

    out: Path = Path(".")
    """Folder that results will be written to: is it writable, is there room?"""
    host: str = "127.0.0.1"
    """Address of the live page and of the port for the simulator."""
    port: int = 8090
    """Port of the live page."""
    simulator_port: int = 4567
    """Port that the Udacity simulator connects to."""


CONFIG = DoctorConfig


def run(config: DoctorConfig) -> int:
    """Print one line per check; 1 if something essential does not work."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from nacdrive.cli.checks import examine

    table = Table("", "what", "found", box=None, pad_edge=False)
    broken = []
    console = Console()
    with console.status("looking ..."):
        for finding in examine(config.out, config.host, config.port, config.simulator_port):
            colour = "green" if finding.works else "red" if finding.essential else "yellow"
            word = "OK" if finding.works else "BAD" if finding.essential else "note"
            table.add_row(f"[{colour}]{word}[/]", finding.name, escape(finding.found))
            if not finding.works and finding.essential:
                broken.append(finding.name)
    console.print(table)
    if broken:
        print(UserError(f"does not work: {', '.join(broken)}. Each line above says how to mend it."))
        return 1
    print("Ready: nacdrive demo")
    return 0
