"""Bad input becomes one ``ValueError`` that names the argument, its value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def tracing() -> bool:
    """Whether torch records or transforms this call (compile, export, trace, vmap, func.grad).

    Then everything must be one differentiable torch operation after another: no NumPy, no decision by values, no
    custom autograd function, nothing overwritten.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def require(good: bool, name: str, value: object, allowed: str) -> None:
    """Raise ``ValueError`` unless ``good``."""
    if not good:
        raise ValueError(f"{name}={value!r}; allowed is {allowed}")


def whole(good: bool, name: str, value: object, allowed: str) -> None:
    """``require`` of what is counted, of which there are no fractions."""
    require(not isinstance(value, float), name, value, "a whole number")
    require(good, name, value, allowed)


def one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``allowed``."""
    require(isinstance(value, str) and value in allowed, name, value, "one of " + ", ".join(allowed))


def check_dropout(dropout: float) -> None:
    """Raise ``ValueError`` unless ``dropout`` is a share of what is there."""
    require(isinstance(dropout, (int, float)) and 0 <= dropout < 1, "dropout", dropout, "0 <= dropout < 1")


def check_heads(d_model: int, num_heads: int) -> None:
    """Raise ``ValueError`` unless the heads divide the width."""
    whole(num_heads >= 1, "num_heads", num_heads, "1 or more")
    if d_model % num_heads:
        raise ValueError(f"d_model {d_model} is not divisible by {num_heads} heads")


def check_sizes(
    d_model: int,
    num_heads: int,
    in_features: int | None,
    topk: int | None,
    sparsity: float,
    time_scale: float,
    time_features: int,
    dropout: float,
) -> None:
    """Check the arguments that every form of the layer has."""
    check_heads(d_model, num_heads)
    whole(in_features is None or in_features >= 1, "in_features", in_features, "1 or more, or None")
    whole(topk is None or topk >= 1, "topk", topk, "1 or more, or None for all keys")
    require(sparsity == 0 or 0.1 <= sparsity <= 0.9, "sparsity", sparsity, "0 or 0.1 to 0.9")
    require(0 < time_scale < math.inf, "time_scale", time_scale, "a positive number of seconds")
    whole(time_features >= 0, "time_features", time_features, "0 or more frequencies")
    check_dropout(dropout)


def check_tensor(name: str, x: object) -> None:
    """Raise ``ValueError`` for what is no tensor, such as an array or a list."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; allowed is a torch tensor")


def check_tokens(name: str, x: Tensor, features: int, weight: Tensor, padding: Tensor | None = None) -> None:
    """Check the shape ``[B, T, features]`` and that the dtype is that of the weights (unless under autocast)."""
    check_tensor(name, x)
    if x.ndim != 3 or x.shape[-1] != features or 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed is [batch, time, {features}], none of them 0")
    if not x.is_floating_point():
        raise ValueError(f"{name} has dtype {x.dtype}; allowed is a floating point dtype")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"{name} has dtype {x.dtype}; allowed is that of the layer, {weight.dtype} (or use autocast)")
    if padding is None:
        return
    check_tensor("key_padding_mask", padding)
    if padding.dtype != torch.bool:
        raise ValueError(f"key_padding_mask has dtype {padding.dtype}; allowed is torch.bool, True = padding")
    if padding.shape != x.shape[:2]:
        raise ValueError(f"key_padding_mask has shape {tuple(padding.shape)}; allowed is {list(x.shape[:2])}")


def check_inputs(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, features: int, weight: Tensor
) -> None:
    """Check the inputs of attention, and ``padding``, bool ``[B, Tk]``, against the layer and against each other."""
    check_tokens("query", query, features, weight)
    for name, x in (("key", key), ("value", value)):
        if x is not query:
            check_tokens(name, x, features, weight)
        if x.dtype != query.dtype:
            raise ValueError(f"{name} has dtype {x.dtype}; allowed is that of query, {query.dtype}")
        if x.shape[0] != query.shape[0]:
            raise ValueError(f"{name} has batch size {x.shape[0]}; allowed is that of query, {query.shape[0]}")
    if key.shape[1] != value.shape[1]:
        raise ValueError(f"value has {value.shape[1]} steps; allowed is as many as key, {key.shape[1]}")
    check_tokens("key", key, features, weight, padding)


def check_step(x: Tensor, t: Tensor | None, batch: int, features: int, weight: Tensor) -> None:
    """Check one live step of ``batch`` sequences: ``x [B, features]`` and times ``t [B]``, or None."""
    check_tensor("x", x)
    if x.ndim != 2 or x.shape[0] != batch:
        raise ValueError(f"x has shape {tuple(x.shape)}; allowed is [{batch}, {features}], as in the state")
    check_tokens("x", x.unsqueeze(1), features, weight)
    if t is not None:
        _check_seconds("t", t, (batch,))


def check_times(name: str, t: Tensor, batch: int, steps: int) -> Tensor:
    """Check times in seconds and return them as floating point ``[B, T]``."""
    _check_seconds(name, t, (steps,), (batch, steps))
    return (t if t.is_floating_point() else t.double()).expand(batch, steps)


def _check_seconds(name: str, t: Tensor, *shapes: tuple[int, ...]) -> None:
    check_tensor(name, t)
    if t.shape not in shapes:
        allowed = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name} has shape {tuple(t.shape)}; allowed is {allowed} (seconds)")
    if t.dtype == torch.bool or t.is_complex():
        raise ValueError(f"{name} has dtype {t.dtype}; allowed is a real dtype (seconds)")
