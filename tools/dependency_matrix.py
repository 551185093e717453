"""Install nacdrive with the oldest and the newest dependencies it admits, on several Pythons, and run core tests.

    make test-matrix                                    # everything that is at hand
    python tools/dependency_matrix.py --pythons 3.11 --resolutions lowest-direct --keep-torch 2.13.0 --find-links DIR

For every pair: resolve with uv, make an environment in build/matrix/, install, run the tests of the core rooms. A
Python that is not installed is named and left out, and so is a pair that is not admitted. PyTorch comes as the build
for the CPU (``--torch-backend``), or as the one version of ``--keep-torch`` where there is no other to be had.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ("common", "nac", "models", "drivers", "datasets", "training", "viz", "cli/test_main.py", "test_release.py")
"""Tests of rooms that each use other dependencies, and that take minutes."""
CUDA = ("nvidia", "cuda", "triton")
"""What a resolution for PyTorch's usual build brings along, and its build for the CPU does not need."""


def run(command: list[str], **more: object) -> int:
    """Run a command and say so; gives its exit code."""
    print("$", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, check=False, **more).returncode  # type: ignore[call-overload, no-any-return]


def python_at_hand(version: str) -> str | None:
    """A Python of that version, if one is installed."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    located = subprocess.run(
        [sys.executable, "-m", "uv", "python", "find", "--no-python-downloads", version],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return located.stdout.strip() or shutil.which(f"python{version}")


def one(python: str, version: str, resolution: str, options: argparse.Namespace) -> str:
    """What came of one pair, in words."""
    folder = options.out / f"{version}-{resolution}"
    folder.mkdir(parents=True, exist_ok=True)
    wanted, uv = folder / "requirements.txt", [sys.executable, "-m", "uv"]
    links = ["--find-links", options.find_links] if options.find_links else []
    resolve = [
        *uv, "pip", "compile", "pyproject.toml", "--extra", "dev", "--quiet", "--no-annotate", "--no-header",
        "--python-version", version, "--resolution", resolution, "--only-binary", ":all:", *links,
        "--output-file", str(wanted),
    ]  # fmt: skip
    if options.keep_torch:
        (folder / "override.txt").write_text(f"torch=={options.keep_torch}\n", encoding="utf-8")
        resolve += ["--override", str(folder / "override.txt")]
    else:
        resolve += ["--torch-backend", options.torch_backend]
    if run(resolve):
        return "cannot be resolved"
    lines = [line for line in wanted.read_text(encoding="utf-8").splitlines() if not line.startswith(CUDA)]
    wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.resolve_only:
        return f"resolved to {len(lines)} packages"
    if run([python, "-m", "venv", "--clear", str(folder / "venv")]):
        return "no environment could be made"
    own = str(folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python")
    # pip, which reads the settings of this machine (where PyTorch is found, say).
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *links]
    index = [] if options.keep_torch else ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
    if run([*pip, *index, "--requirement", str(wanted)]) or run([*pip, "--editable", "."]):
        return "cannot be installed"
    tests = [f"tests/{name}" for name in options.tests]
    flags = ["-p", "no:cacheprovider", "-q"]
    code = run([own, "-m", "pytest", *flags, *tests], env={**os.environ, "OMP_NUM_THREADS": "1"})
    return "passes" if code == 0 else f"tests fail (code {code})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pythons", nargs="+", default=["3.11", "3.12", "3.13"])
    parser.add_argument("--resolutions", nargs="+", default=["lowest-direct", "highest"])
    parser.add_argument("--tests", nargs="+", default=list(CORE), help="below tests/")
    parser.add_argument("--torch-backend", default="cpu", help="of uv: cpu, cu128, ...")
    parser.add_argument("--keep-torch", help="this version of torch in every pair, from where pip finds it")
    parser.add_argument("--find-links", help="a folder with wheels")
    parser.add_argument("--resolve-only", action="store_true", help="install nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "matrix")
    options = parser.parse_args()
    results = {}
    for version in options.pythons:
        python = python_at_hand(version)
        for resolution in options.resolutions:
            missing = python is None and not options.resolve_only
            result = "this Python is not installed" if missing else one(python or "", version, resolution, options)
            results[f"Python {version}, {resolution}"] = result
    print("\n".join(f"{pair}: {result}" for pair, result in results.items()))
    fine = ("passes", "resolved", "this Python")
    return 0 if all(result.startswith(fine) for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
