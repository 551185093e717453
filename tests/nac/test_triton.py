"""The GPU kernels: results in Triton's interpreter, machine code without a GPU, and the choice between the paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.nac import NAC
from nacdrive.nac.dynamics import Euler
from nacdrive.nac.kernels import chunked
from nacdrive.nac.kernels import triton as kernels
from nacdrive.nac.kernels.blocks import attend_in_blocks
from nacdrive.nac.pairwise import PairProblem, Tokens
from tests.helpers import triton_cases
from tests.helpers.nightly import daily
from tests.helpers.triton_cases import Case

CASES = triton_cases.all_cases()
ROOT = Path(__file__).resolve().parents[2]
needs_triton = pytest.mark.skipif(not kernels.available(), reason="triton is not installed")
# bfloat16 keeps 8 bits of the products' factors.
TOLERANCE = {False: 2e-5, True: 5e-2}


def program(name: str, cache: Path, *arguments: str, **environment: str) -> Any:
    """What a program of tests/helpers prints, as JSON. Of its own, because triton decides on import how it runs."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", f"tests.helpers.{name}", *arguments],
        env=os.environ | {"PYTHONPATH": path, "TRITON_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def interpreted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, float]]:
    """Errors of the cases that are asked for, by one process."""
    cases = [
        item.callspec.params["case"]
        for item in request.session.items
        if item.name.startswith(INTERPRETED) and item.cls is None
    ]
    errors: dict[str, dict[str, float]] = program(
        "triton_cases", tmp_path_factory.mktemp("cache"), *map(str, cases), TRITON_INTERPRET="1"
    )
    return errors


INTERPRETED = "test_output_and_gradients_equal_autograd_in_float64"
# Every mode, both kinds of keys, a padded and a causal mask, and the options that meet in one case.
DAILY = ("euler-pairwise-padded-unfolds1-shared", "steady-causal", "padded+causal-unfolds3-silu-scaled")


@needs_triton
@pytest.mark.parametrize("case", daily([c for c in CASES if not c.low], DAILY))
def test_output_and_gradients_equal_autograd_in_float64(case: Case, interpreted: dict[str, dict[str, float]]) -> None:
    errors = interpreted[str(case)]
    assert errors.keys() >= {"y", "zq", "zk", "tq", "tk", "v", "tau"}
    assert max(errors.values()) < 2e-5, errors


@needs_triton
@pytest.mark.nightly
def test_kernels_compile_to_machine_code_without_a_gpu(tmp_path: Path) -> None:
    # The interpreter accepts what the compiler refuses: narrow products, sizes that are not powers of two, mixed types.
    built = program("triton_compiled", tmp_path, TRITON_INTERPRET="0")
    assert built
    for name, shared in built.items():
        assert 0 < shared <= 99 * 1024, f"{name} takes {shared} bytes of shared memory, more than the smallest GPU has"


@pytest.mark.nightly
def test_importing_the_room_needs_no_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch\n"
        "from nacdrive.nac import NAC\n"
        "from nacdrive.nac.kernels import triton as kernels\n"
        "assert not kernels.available()\n"
        "NAC(8, 2)(torch.randn(1, 4, 8))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def pairs(dtype: torch.dtype = torch.float32, **changes: Any) -> tuple[Tokens, Any, PairProblem]:
    tokens, w, _, problem = triton_cases.build(Case(), "cpu", dtype)
    return tokens, w, replace(problem, **changes)


@pytest.fixture
def any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "available", lambda: True)
    monkeypatch.setattr(kernels, "_runs_on", lambda device, shared: True)


@pytest.mark.usefixtures("any_device")
class TestSupport:
    def test_default_is_supported(self) -> None:
        assert kernels.supported(*pairs())

    def test_float64_is_not(self) -> None:
        assert not kernels.supported(*pairs(torch.float64))

    def test_dropout_is_not(self) -> None:
        assert not kernels.supported(*pairs(dropout=0.1))

    def test_a_trained_score_is_not(self) -> None:
        tokens, w, problem = pairs()
        assert not kernels.supported(tokens._replace(score=torch.zeros(2, 14, 5)), w, problem)

    def test_adaptive_euler_is_not(self) -> None:
        tokens, w, problem = pairs()
        options = type(problem.options)(Euler(adaptive=True), "sigmoid", "time", 1.0, 1e-3)
        assert not kernels.supported(tokens, w, replace(problem, options=options))

    def test_many_unfolds_are_not(self) -> None:
        tokens, w, problem = pairs()
        assert not kernels.supported(tokens, replace(w, unfolds=5), problem)

    @pytest.mark.parametrize(
        ("width", "low", "good"), [(64, False, True), (65, False, False), (65, True, True), (129, True, False)]
    )
    def test_width_is_limited_by_shared_memory(self, width: int, low: bool, good: bool) -> None:
        tokens, w, problem = pairs(low=low)
        wide = tokens._replace(zq=torch.zeros(2, 14, width))
        assert kernels.supported(wide, w, problem) is good

    def test_deterministic_algorithms_are_not(self) -> None:
        torch.use_deterministic_algorithms(True)
        try:
            assert not kernels.supported(*pairs())
        finally:
            torch.use_deterministic_algorithms(False)

    def test_a_cpu_never_takes_the_kernel(self) -> None:
        assert not kernels.applies(*pairs())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@needs_triton
class TestOnGpu:
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_output_and_gradients_equal_autograd_in_float64(self, case: Case) -> None:
        errors = triton_cases.errors(case, "cuda")
        assert max(errors.values()) < TOLERANCE[case.low], errors

    @pytest.mark.parametrize("topk", [8, None], ids=["topk", "pairwise"])
    @pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
    def test_layer_takes_the_kernel_and_equals_the_chunked_path(
        self, topk: int | None, low: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        torch.manual_seed(0)
        layer = NAC(32, 4, topk=topk).cuda()
        x = torch.randn(2, 100, 32, device="cuda")
        taken = []
        kernel = kernels.attend

        def spy(*a: Any) -> torch.Tensor:
            taken.append(True)
            return kernel(*a)

        monkeypatch.setattr(kernels, "attend", spy)

        def outcome(least: int | None) -> list[torch.Tensor]:
            monkeypatch.setattr(kernels, "LEAST_PAIRS", least)
            layer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=low):
                y = layer(x, is_causal=True)
            y.float().square().sum().backward()
            return [y.float(), *(p.grad for p in layer.parameters() if p.grad is not None)]

        wanted = outcome(None)
        assert not taken
        got = outcome(0)
        assert taken
        for a, b in zip(got, wanted, strict=True):
            assert (a - b).abs().max() <= (5e-2 if low else 1e-4) * b.abs().max().clamp(min=1)

    def test_chunked_path_agrees_at_size(self) -> None:
        tokens, w, scale, problem = triton_cases.build(Case(steps=300), "cuda", torch.float32)
        full = triton_cases.expanded(w, 2)
        torch.testing.assert_close(
            kernels.attend(tokens, full, scale, problem),
            attend_in_blocks(chunked.ChunkedBackbone, tokens, full, scale, problem),
            rtol=1e-4,
            atol=1e-5,
        )
