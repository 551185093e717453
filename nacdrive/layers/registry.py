"""Names of sequence layers, and how each is built. A layer's file is imported only when it is asked for.

A layer of one's own is a class like those here (``SequenceLayer``): ``build("my_module:MyLayer", ...)`` takes it from
the current folder, ``register`` gives it a name for this process, and an installed package names it as an entry point
of the group ``nacdrive.layers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nacdrive.common.errors import UserError, named, quoted, unknown_name
from nacdrive.common.plugins import Registry
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.contract import check_shapes
from nacdrive.nac import ABLATIONS, PRESETS, VARIANTS

Factory = Callable[..., SequenceLayer]  # (in_features, d_model, num_heads, window, **options)

CLASSES = {
    "rnn": {"dense": "Dense", "rnn": "RNN", "lstm": "LSTM", "gru": "GRU"},
    "ct_rnn": {"ct-rnn": "CTRNN", "gru-ode": "GRUODE", "phased-lstm": "PhasedLSTM", "mmrnn": "MMRNN"},
    "ltc": {"ltc": "LTC"},
    "ncp": {"cfc": "CfC", "ltc-ncp": "LTCNCP", "cfc-ncp": "CfCNCP"},
    "state_space": {"deepstate": "DeepState", "s4": "S4"},
    "nac": {"nac-key": "NACKey", "nac-key-plain": "NACKey"},
    "attention": {
        "attention": "Attention", "mha": "MHA", "linear-attention": "LinearAttention", "rela": "ReLA",
        "performer": "Performer", "mtan": "MTAN", "odeformer": "ODEFormer",
    },
    "cta": {"cta": "CTA"},
    "contiformer": {"contiformer": "ContiFormer", "contiformer-linear": "ContiFormerLinear"},
    "block": {"stack": "Stack"},
}  # fmt: skip
"""Module -> name of a layer -> its class, without ``Layer`` at the end."""
# Options that a name stands for.
OPTIONS: dict[str, dict[str, Any]] = {**VARIANTS, **PRESETS}
FILES = dict.fromkeys(OPTIONS, "nacdrive.layers.nac:NACLayer") | {
    name: f"nacdrive.layers.{module}:{kind}Layer" for module, kinds in CLASSES.items() for name, kind in kinds.items()
}
LAYERS: Registry[Factory] = Registry("model", "nacdrive.layers", FILES)
OPTIONS["nac-key-plain"] = {"plain": True}
BENCH_ONLY = (*ABLATIONS, "nac-key-plain")
LAG = "-lag"
"""At the end of a layer's name: that layer with what ``nac-lag`` has beside its circuit, in a ``stack``."""
LAG_OPTIONS: dict[str, Any] = {"depth": 1, "expansion": 0.0, "time_features": 16}
# The baselines of the paper's Table 1, in its order.
BASELINES = (
    "rnn", "lstm", "gru", "ct-rnn", "gru-ode", "phased-lstm", "mmrnn", "ltc", "cfc", "deepstate", "s4", "attention",
    "mha", "linear-attention", "performer", "mtan", "cta", "odeformer", "contiformer",
)  # fmt: skip


def names(ablations: bool = False) -> list[str]:
    """All registered names, sorted; with ``ablations`` also those of NAC that only the bench asks for."""
    return sorted(name for name in LAYERS.names() if ablations or name not in BENCH_ONLY)


def of_lag(name: str) -> str | None:
    """The layer that stands before ``-lag`` in a name; None where the name is that of a layer itself, or of none."""
    base = name.removesuffix(LAG)
    if base == name or name in LAYERS or ":" in base or base not in LAYERS:
        return None
    if base == "stack":
        raise UserError("there is no 'stack-lag': give stack the options of its own (time_features, layer, depth).")
    if base.endswith(LAG):
        raise UserError(f"there is no '{name}': '{base}' has its lags already.")
    return base


def row_note(name: str) -> str | None:
    """What a reader of a table must know of a row, such as which options of ``nac-lag`` a layer named ``...-lag`` has
    and which it cannot take; None for most."""
    if name == "nac-constant":
        return (
            "`nac-constant`: NAC as the authors' code computes it. There the circuit's answer is the same for all "
            "pairs, so that attention is uniform over the Top-K keys but for the time gate; every row of Table 1 named "
            "NAC but NAC-FC was made so (docs/nac.md)."
        )
    if (base := of_lag(name)) is None:
        return None
    sense = build(base, 16, 4, 2).time_sense
    lags = {"none": "cannot take lags", "gaps": "feels gaps itself", "clock": "feels times itself"}
    return f"`{name}`: `{base}` behind a norm, with {LAG_OPTIONS['time_features']} time features; it {lags[sense]}."


def check_name(name: str) -> None:
    """Refuse, before any work, a layer that cannot be found or that only the bench asks for."""
    if not isinstance(name, str):
        raise UserError(f"{name} is no name of a layer: give lstm, nac-lag, my_module:MyLayer, ...")
    base = of_lag(name) or name
    if base in BENCH_ONLY or (":" not in base and base not in LAYERS):
        raise unknown_name("model", name, names())
    LAYERS.load(base)


def register(name: str, factory: str | Factory, options: dict[str, Any] | None = None) -> None:
    """Give a layer a name for this process, and the ``options`` that the name stands for; ``UserError`` if it is taken.

    ``factory`` is a subclass of ``SequenceLayer``, or ``module:Name`` to import it from when it is asked for.
    """
    LAYERS.register(name, factory)
    OPTIONS[name] = dict(options or {})


def build(
    name: str, d_model: int, num_heads: int, window: int, *, in_features: int | None = None, **options: Any
) -> SequenceLayer:
    """Build the sequence layer of a registered name, such as ``nac-steady``, one with ``-lag`` behind it (``LAG``), or
    ``module:Name``; sizes and ``gap_s`` are those of ``SequenceLayer``, ``in_features`` by default ``d_model``. Options
    override what the name stands for.

    ``UserError`` if the name is unknown (the sentence suggests the nearest), or if a layer from elsewhere cannot
    be built or does not answer in the right shapes.
    """
    if (base := of_lag(name)) is not None:
        gap_s = {"gap_s": options.pop("gap_s")} if "gap_s" in options else {}
        more = {**LAG_OPTIONS, **gap_s, "layer": base, "layer_options": options}
        return build("stack", d_model, num_heads, window, in_features=in_features, **more)
    factory = LAYERS.load(name)
    given = (d_model if in_features is None else in_features, d_model, num_heads, window)
    options = {**OPTIONS.get(name, {}), **options}
    if LAYERS.is_builtin(name):
        return factory(*given, **options)
    # A name that a model file brings must not call whatever it likes.
    if ":" in name and not (isinstance(factory, type) and issubclass(factory, SequenceLayer)):
        raise UserError(f"model '{name}' is no sequence layer: it must be a subclass of nacdrive.layers.SequenceLayer.")
    call = "Name(in_features, d_model, num_heads, window, gap_s=..., **options)"
    with quoted(f"model '{name}' cannot be built as {call}: ", ".", Exception, say=named):
        layer = factory(*given, **options)
    check_shapes(layer, f"model '{name}'")
    return layer
