"""Named models: which options of ``NAC`` each one sets."""

from __future__ import annotations

from typing import Any

from nacdrive.nac.layer import NAC
from nacdrive.nac.validation import one_of

# The paper's (appendix D.2).
VARIANTS: dict[str, dict[str, Any]] = {
    "nac-exact": {},
    "nac-euler": {"mode": "euler"},
    "nac-steady": {"mode": "steady"},
    "nac-2k": {"topk": 2},
    "nac-32k": {"topk": 32},
    "nac-pw": {"topk": None},
    "nac-02s": {"sparsity": 0.2},
    "nac-09s": {"sparsity": 0.9},
    "nac-phi-none": {"phi": "none"},
    "nac-phi-tanh": {"phi": "tanh"},
    "nac-fc": {"gate": "fc", "sparsity": 0.0},
    "nac-02sfc": {"gate": "fc", "sparsity": 0.2},
    "nac-05sfc": {"gate": "fc", "sparsity": 0.5},
    "nac-09sfc": {"gate": "fc", "sparsity": 0.9},
}
# Of these, what the paper takes apart and a table alone asks for.
KEPT = ("nac-exact", "nac-euler", "nac-steady", "nac-pw")
ABLATIONS = (*(name for name in VARIANTS if name not in KEPT), "nac-constant")
# Beyond the paper: sharp logits over normalised tokens that know when they happened (docs/nac.md, "Levers").
LAG: dict[str, Any] = {"input_norm": True, "time_features": 16, "logit_scale": 8.0}
PRESETS: dict[str, dict[str, Any]] = {
    "nac-lag": {"topk": None, **LAG},
    "nac-lag-8k": {"topk": 8, **LAG},
    "nac-gated": {"topk": 8, "score_gradient": "gated", **LAG},
    "nac-constant": {"gate": "constant"},  # as the authors' code computes it: equal weights for the Top-K keys
    "nac-elapsed": {"topk": None, "time_input": "elapsed", "logit_scale": 8.0},
}
# What ``--protocol paper`` adds: the paper's constant window and its partition, whatever the length.
PAPER: dict[str, Any] = {"quadrature": "constant", "delta_t": 1.0, "selection": "sqrt"}


def variant(name: str, d_model: int, num_heads: int, *, paper: bool = False, **overrides: Any) -> NAC:
    """The layer of a variant, by its name in ``VARIANTS`` or ``PRESETS``; ``ValueError`` where it is in neither.

    ``paper`` also pins what the paper's protocol pins; ``overrides`` are further options of ``NAC``.
    """
    named = {**VARIANTS, **PRESETS}
    one_of("name", name, tuple(named))
    return NAC(d_model, num_heads, **{**named[name], **(PAPER if paper else {}), **overrides})
