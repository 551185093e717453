"""Compile the kernels for GPUs that are not there and print the bytes of shared memory that each takes, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nacdrive.nac.kernels import triton as kernels
from nacdrive.nac.kernels.triton.backward import backward_kernel
from nacdrive.nac.kernels.triton.forward import forward_kernel
from tests.helpers import triton_cases
from tests.helpers.triton_cases import Case

CASES = {
    80: [Case(mask="padded", low=True, act="tanh")],
    90: [Case("euler", "pairwise", "window", act="silu", scaled=True)],
}
WHOLE = {"index": "*i64", "position": "*i64", "padding": "*u8", "index_head": "i64"}


def shared_memory(kernel: Any, launch: kernels.Plan, capability: int) -> int:
    """Bytes of shared memory of the machine code for an NVIDIA GPU of this compute capability."""

    def kind(name: str) -> str:
        if name in launch.constants:
            return "constexpr"
        if name in launch.numbers or name == "index_row":
            return "i32"
        if name in ("w2", "wr") and launch.constants["LOW"]:
            return "*bf16"
        return WHOLE.get(name, "*fp32")

    signature = {name: kind(name) for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(signature) if signature[name][0] == "*"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=launch.constants, attrs=aligned)
    built = triton.compile(source, GPUTarget("cuda", capability, 32), {"num_warps": launch.warps, "num_stages": 1})
    assert built.asm["cubin"]
    return int(built.metadata.shared)


def main() -> None:
    """Compile each case, forward and backward, and print the bytes."""
    shared = {}
    for capability, cases in CASES.items():
        for case in cases:
            tokens, w, scale, problem = triton_cases.build(case, "cpu", torch.float32)
            launch = kernels.plan(tokens, triton_cases.expanded(w, 2), scale is not None, problem, processors=100)
            for kernel in (forward_kernel, backward_kernel):
                shared[f"{kernel.__name__} {case} sm_{capability}"] = shared_memory(kernel, launch, capability)
    json.dump(shared, sys.stdout)


if __name__ == "__main__":
    main()
