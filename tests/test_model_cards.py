"""What a hub reads of a model card: it is there, agrees with the card's own tables, and its makers keep it so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nacdrive.common.paths import shipped

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: it is in the extra 'dev'")
ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
import hub_metadata  # noqa: E402

AGENTS = shipped("agents")
CARDS = sorted(AGENTS.rglob("*.md"))


def front(path: Path) -> dict:
    _, text, _ = path.read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(text)


@pytest.mark.parametrize("path", CARDS, ids=lambda path: str(path.relative_to(AGENTS)))
def test_a_card_begins_with_what_a_hub_reads(path: Path) -> None:
    found = front(path)
    assert found["license"] == "mit" and found["library_name"] == "nacdrive" and len(found["tags"]) >= 2
    (model,) = found["model-index"]
    for result in model["results"]:
        assert set(result) == {"task", "dataset", "metrics"} and result["metrics"]
        assert all(set(metric) == {"type", "name", "value"} for metric in result["metrics"])


@pytest.mark.parametrize("path", CARDS, ids=lambda path: str(path.relative_to(AGENTS)))
def test_its_numbers_are_those_of_the_cards_own_tables(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert hub_metadata.with_front_matter(path, text) == text


def test_every_shipped_model_has_a_card() -> None:
    for path in AGENTS.rglob("*.pt"):
        expert = path.parent.name in hub_metadata.EXPERTS
        assert (path.parent / "README.md" if expert else path.with_suffix(".md")) in CARDS


def test_results_are_read_and_not_remembered() -> None:
    path = AGENTS / "carracing/nac_steady.md"
    text = path.read_text(encoding="utf-8")
    mean, std = re.findall(r"\*\*([\d.]+)\*\* ± ([\d.]+), least", text)[0]
    other = hub_metadata.with_front_matter(path, text.replace(f"**{mean}** ± {std}", "**12.5** ± 3.0"))
    assert "12.5 +/- 3.0" in other and f"{mean} +/-" not in other
    with pytest.raises(ValueError, match="unseen tracks"):
        hub_metadata.with_front_matter(path, "# nac_steady.pt\n\nNo numbers.\n")
