"""Names of sequence layers, and how each is built. A layer's file is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nacdrive.common.errors import unknown_name
from nacdrive.layers.base import SequenceLayer
from nacdrive.nac import VARIANTS

# name -> (file, class, options that the name stands for)
LAYERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{name: ("nac", "NACLayer", options) for name, options in VARIANTS.items()},
    "dense": ("dense", "DenseLayer", {}),
    "rnn": ("rnn", "RNNLayer", {}),
    "lstm": ("lstm", "LSTMLayer", {}),
    "gru": ("gru", "GRULayer", {}),
    "ct-rnn": ("ct_rnn", "CTRNNLayer", {}),
    "gru-ode": ("gru_ode", "GRUODELayer", {}),
    "phased-lstm": ("phased_lstm", "PhasedLSTMLayer", {}),
    "mmrnn": ("mmrnn", "MMRNNLayer", {}),
    "ltc": ("ltc", "LTCLayer", {}),
    "cfc": ("cfc", "CfCLayer", {}),
    "deepstate": ("deepstate", "DeepStateLayer", {}),
    "s4": ("s4", "S4Layer", {}),
    "attention": ("attention", "AttentionLayer", {}),
    "mha": ("mha", "MHALayer", {}),
    "linear-attention": ("linear_attention", "LinearAttentionLayer", {}),
    "rela": ("rela", "ReLALayer", {}),
    "performer": ("performer", "PerformerLayer", {}),
    "mtan": ("mtan", "MTANLayer", {}),
    "cta": ("cta", "CTALayer", {}),
    "odeformer": ("odeformer", "ODEFormerLayer", {}),
    "contiformer": ("contiformer", "ContiFormerLayer", {}),
    "contiformer-linear": ("contiformer_linear", "ContiFormerLinearLayer", {}),
}
# The baselines of the paper's Table 1, in its order.
BASELINES = (
    "rnn",
    "lstm",
    "gru",
    "ct-rnn",
    "gru-ode",
    "phased-lstm",
    "mmrnn",
    "ltc",
    "cfc",
    "deepstate",
    "s4",
    "attention",
    "mha",
    "linear-attention",
    "performer",
    "mtan",
    "cta",
    "odeformer",
    "contiformer",
)


def names() -> list[str]:
    """All registered names, sorted."""
    return sorted(LAYERS)


def build(
    name: str, d_model: int, num_heads: int, window: int, *, in_features: int | None = None, **options: Any
) -> SequenceLayer:
    """Build the sequence layer ``name``.

    Args:
        name: a registered name, such as ``nac-steady``.
        d_model: width of the output.
        num_heads: attention heads; a layer without heads ignores them.
        window: how many steps, the present one included, an output may depend on.
        in_features: width of the input; ``d_model`` if not given.
        options: the layer's own options; they override what the name stands for. Every layer takes ``gap_s``, the
            typical time between two steps in seconds.

    Raises:
        UserError: if the name is unknown; the sentence suggests the nearest.
    """
    if name not in LAYERS:
        raise unknown_name("model", name, LAYERS)
    file, kind, preset = LAYERS[name]
    layer: type[SequenceLayer] = getattr(import_module(f"nacdrive.layers.{file}"), kind)
    return layer(in_features or d_model, d_model, num_heads, window, **{**preset, **options})
