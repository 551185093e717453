"""Without an extra the rest works, and whatever needs it names the one command that adds it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nacdrive
from nacdrive.cli import main
from nacdrive.common.errors import UserError
from nacdrive.common.optional import EXTRAS, missing_extra

# Stands in the way of every module of an extra, as if none were installed.
BARE = f"""
import sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(m for modules in EXTRAS.values() for m in modules)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, NotInstalled())
import torch, nacdrive, nacdrive.layers
assert "numba" not in sys.modules
y = nacdrive.NAC(8, 2)(torch.randn(1, 4, 8), t=torch.arange(4.0))
nacdrive.layers.build("lstm", 8, 2, window=4)
for name in ("make_env", "Recording", "rollout"):
    try:
        getattr(nacdrive, name)()
    except Exception as error:
        print(type(error).__name__, error)
sys.argv = ["nacdrive", "drive"]
from nacdrive.cli.main import main
main()
"""


def test_the_layer_needs_no_extra_and_a_verb_names_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True)
    sentence = "is not installed: add it with pip install 'nacdrive[drive]'."
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout + done.stderr
    assert all(line.startswith("UserError ") and line.endswith(sentence) for line in lines), lines
    assert done.returncode == 2 and done.stderr.startswith("nacdrive: ") and done.stderr.strip().endswith(sentence)


@pytest.mark.parametrize(
    ("module", "line", "extra"),
    [
        ("tyro", ["drive", "--headless"], "drive"),
        ("imageio_ffmpeg", ["eval", "--episodes", "1"], "viz"),
        ("h5py", ["recordings", "export", "recordings/carracing-sample", "--to", "minari", "--out", "never"], "minari"),
    ],
)
def test_a_verb_without_its_extra_says_what_adds_it(
    module: str, line: list[str], extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "argv", ["nacdrive", *line])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err
        == f"nacdrive: {module} is not installed: add it with pip install 'nacdrive[{extra}]'.\n"
    )


def test_python_says_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"nacdrive\[onnx\]"):
        nacdrive.export_onnx("nac_steady", f"{tmp_path}/x.onnx")


def test_what_no_extra_can_bring_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert "use Python 3.11 to 3.13" in str(missing_extra(ModuleNotFoundError("No module named 'Box2D'", name="Box2D")))


def test_a_module_of_somebody_elses_is_no_extra() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'my_env'", name="my_env")) is None
