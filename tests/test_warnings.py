"""Nothing of ours warns when it is imported, even where every warning is an error."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The kernels need triton, which is there on Linux alone; the last one starts the command line.
IMPORT_ALL = """
import importlib, pkgutil, nacdrive
left_out = ("triton.forward", "triton.backward", "__main__")
names = [m.name for m in pkgutil.walk_packages(nacdrive.__path__, "nacdrive.") if not m.name.endswith(left_out)]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.nightly
def test_every_module_can_be_imported_where_warnings_are_errors() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 150
