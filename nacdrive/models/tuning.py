"""The file beside a model that says which head tells most, for the page; ``tools/head_tuning.py`` measures it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def tuning_file(model: Path) -> Path:
    """Where the table of a model file is kept."""
    return model.with_suffix(".tuning.json")


def read_tuning(model: Path) -> list[dict[str, Any]]:
    """The table kept beside a model file; empty where there is none, or it is of another model."""
    try:
        kept = json.loads(tuning_file(model).read_text(encoding="utf-8"))
        return list(kept["heads"]) if kept["model_sha256"] == checksum(model) else []
    except (OSError, ValueError, KeyError, TypeError):
        # A page without a table measures it on the drive.
        return []


def checksum(model: Path) -> str:
    """SHA-256 of a model file."""
    return hashlib.sha256(model.read_bytes()).hexdigest()
