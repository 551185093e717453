"""Names: the nearest known one to a mistyped one, and models found from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacdrive.common import paths
from nacdrive.common.errors import UserError, unknown_name


def test_the_nearest_name_is_suggested() -> None:
    assert "did you mean 'nac-steady'?" in str(unknown_name("model", "nac-stedy", ["nac-steady", "lstm"]))
    assert "did you mean" not in str(unknown_name("model", "qqq", ["nac-steady", "lstm"]))


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "agents" / "carracing"
    folder.mkdir(parents=True)
    (folder / "nac_steady.pt").write_bytes(b"shipped")
    monkeypatch.setattr(paths, "shipped", lambda kind: tmp_path / kind)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("name", ["nac_steady.pt", "nac_steady", "nac-steady"])
def test_a_bare_name_means_the_shipped_model(agents: Path, name: str) -> None:
    assert paths.find_model(name, "carracing") == agents / "nac_steady.pt"


def test_an_own_file_wins_over_the_shipped_one(agents: Path) -> None:
    Path("nac_steady.pt").write_bytes(b"own")
    assert paths.find_model("nac_steady.pt", "carracing") == Path("nac_steady.pt")


def test_unknown_models_are_named(agents: Path) -> None:
    with pytest.raises(UserError, match=r"did you mean 'nac_steady\.pt'"):
        paths.find_model("nac_stedy.pt", "carracing")
    with pytest.raises(UserError, match=r"no model file folder/nac_steady\.pt"):
        paths.find_model("folder/nac_steady.pt", "carracing")


def test_a_folder_of_that_name_does_not_hide_the_shipped_model_and_other_files_are_none(agents: Path) -> None:
    Path("nac_steady").mkdir()
    assert paths.find_model("nac_steady", "carracing") == agents / "nac_steady.pt"
    Path("episode-3.parquet").touch()
    names = ("nac_steady", "episode-3.parquet", "mine.onnx", "nothing")
    assert [paths.is_model(name) for name in names] == [True, False, True, False]
    with pytest.raises(UserError, match="give the whole path"):
        paths.find_model("~nobody-of-that-name/x.pt")
