"""What a training writes while it runs: ``metrics.jsonl``, a row per epoch, and the same for TensorBoard if there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import write_text
from nacdrive.common.foreign_json import read_lines
from nacdrive.common.result_folder import note_own

BOARD = "tensorboard"


def note_board(folder: Path) -> None:
    """Note the event files that TensorBoard's writer has begun: their names hold time, machine and process."""
    for path in (folder / BOARD).glob(f"events.out.tfevents.*.{os.getpid()}.*"):
        note_own(path)


class MetricsLog:
    """Appends rows; rows that a resumed training is about to make again are dropped when it is opened."""

    def __init__(self, folder: Path, round_: int, epoch: int) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [row for row in read_rows(self.path) if (row["round"], row["epoch"]) < (round_, epoch)]
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self._index = len(kept)
        self._board: Any = None
        with suppress(ModuleNotFoundError):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / BOARD), purge_step=self._index)
            note_board(folder)

    def add(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(row, allow_nan=False) + "\n")
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, float):
                    self._board.add_scalar(name, value, self._index)
            self._board.flush()
        self._index += 1

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a ``metrics.jsonl`` or of results."""
    rows = read_lines(path)
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} holds lines that are no rows of a log: it is damaged or another kind of file.")
    return rows
