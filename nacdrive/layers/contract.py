"""The laws that every sequence layer keeps, and a check of them for a layer of one's own.

    from nacdrive.layers import contract
    contract.check(MyLayer)

A layer that keeps them can be trained on whole sequences of any length, padded to any length, and driven step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.errors import UserError, named, quoted
from nacdrive.layers.base import SequenceLayer

B, T, F, D, H = 2, 11, 6, 16, 4
Make = Callable[..., SequenceLayer]  # make(window, **options): a fresh layer of F features, width D and H heads


class BrokenLawError(UserError):
    """A layer breaks a law of the contract."""


def check(factory: Callable[..., SequenceLayer], **options: Any) -> None:
    """Check all laws (some seconds); ``BrokenLawError`` says in one sentence which is the first that is broken.

    ``factory`` is a subclass of ``SequenceLayer``, or what makes one with the same arguments and ``options`` of the
    layer.
    """
    name = getattr(factory, "__name__", str(factory))

    def make(window: int, **more: Any) -> SequenceLayer:
        torch.manual_seed(0)
        return factory(F, D, H, window, **options, **more).eval()

    with torch.random.fork_rng(devices=[]):
        for law in LAWS:
            try:
                law(make)
            except BrokenLawError as error:
                raise BrokenLawError(f"{name} breaks the law '{law.__name__}': {error}.") from error
            except Exception as error:
                raise BrokenLawError(f"{name} fails at the law '{law.__name__}': {named(error)}.") from error


def check_shapes(layer: SequenceLayer, name: str) -> None:
    """Whether a layer that was just built answers in the right shapes: a glance, for layers from elsewhere."""
    hint = f"run nacdrive.layers.contract.check({type(layer).__name__}) to see which law it breaks"
    if not isinstance(layer, SequenceLayer):
        raise UserError(f"{name} makes a {type(layer).__name__}, which is not a nacdrive.layers.SequenceLayer.")
    x, was_training = torch.zeros(1, 3, layer.in_features), layer.training
    failed = quoted(f"{name} fails on a sequence of three steps (", f"): {hint}.", Exception, say=named)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), failed:
        try:
            layer.eval()
            whole = layer(x, torch.arange(3.0).unsqueeze(0))
            one, _ = layer.step(x[:, 0], torch.zeros(1), layer.init_state(1))
        finally:
            layer.train(was_training)
    for what, y, wanted in (("forward", whole, (1, 3, layer.d_model)), ("step", one, (1, layer.d_model))):
        if (given := tuple(y.shape)) != wanted:
            raise UserError(f"{name} breaks the law 'shape': {what} gives {given} where {wanted} is due; {hint}.")


def sequence(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Features [B, T, F] and uneven times [B, T]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, F, generator=generator), torch.rand(B, T, generator=generator).cumsum(dim=1)


def same(actual: Tensor, wanted: Tensor, meaning: str, tolerance: float = 1e-4) -> None:
    """Raise ``BrokenLawError`` unless two outputs agree."""
    shapes = f"{tuple(actual.shape)}, {tuple(wanted.shape)}"
    demand(actual.shape == wanted.shape, f"{meaning}, but the shapes are {shapes}")
    demand(bool(torch.isfinite(actual).all()), f"{meaning}, but some numbers are not finite")
    apart = float((actual - wanted).detach().abs().max())
    close = torch.allclose(actual, wanted, atol=tolerance / 10, rtol=tolerance)
    demand(close, f"{meaning}, but they differ by {apart:.2g}")


def demand(good: bool, meaning: str) -> None:
    """Raise ``BrokenLawError`` unless ``good``."""
    if not good:
        raise BrokenLawError(meaning)


def steps(layer: SequenceLayer, x: Tensor, t: Tensor | None) -> Tensor:
    """``step`` repeated over a sequence."""
    state, rows = layer.init_state(len(x)), []
    for i in range(x.shape[1]):
        y, state = layer.step(x[:, i], None if t is None else t[:, i], state)
        rows.append(y)
    return torch.stack(rows, dim=1)


def shape(make: Make) -> None:
    """The output is [B, T, d_model]."""
    x, t = sequence()
    given = tuple(make(4)(x, t).shape)
    demand(given == (B, T, D), f"forward gives {given} where [B, T, d_model] = {(B, T, D)} is due")


def streaming(make: Make) -> None:
    """``step`` repeated equals ``forward``, with times and without."""
    x, t = sequence()
    for window in (1, 4, 50):
        same(steps(make(window), x, t), make(window)(x, t), f"step repeated is forward at window={window}")
    same(steps(make(4), x, None), make(4)(x), "step repeated is forward, also without times")


def window(make: Make) -> None:
    """An output depends on the last ``window`` steps and on nothing else."""
    x, t = sequence()
    changed = x.clone()
    changed[:, 5] += torch.linspace(-1, 1, F)  # not the same for all features: a layer may normalise that away
    for size in (1, 4, 50):
        layer = make(size)
        differs = (layer(changed, t) - layer(x, t)).abs().amax(dim=(0, 2)) > 1e-6
        demand(not bool(differs[:5].any()), "a later step changes an earlier output (it is not causal)")
        demand(bool(differs[5]), "an output does not depend on its own step")
        demand(not bool(differs[5 + size :].any()), "a step that has left the window changes an output")
    try:
        make(0)
    except ValueError as error:
        demand("window" in str(error), "window=0 is refused without naming window")
    else:
        raise BrokenLawError("window=0 is not refused (call super().__init__)")


def padding(make: Make) -> None:
    """A padding step is as if it were not there, wherever it stands and whatever stands in it."""
    x, t = sequence()
    for size in (4, 50):
        layer, behind = make(size), torch.zeros(B, T, dtype=torch.bool)
        behind[:, 8:] = True
        same(layer(x, t, behind)[:, :8], layer(x[:, :8], t[:, :8]), "padding behind changes nothing")
        mixed = torch.zeros(B, T, dtype=torch.bool)
        mixed[0, 7:] = True
        mixed[1, [0, 1, 6]] = True
        other, late = torch.where(mixed.unsqueeze(-1), 9.0, x), torch.where(mixed, t + 3.0, t)
        same(layer(x, t, mixed)[~mixed], layer(other, late, mixed)[~mixed], "padding holds nothing that matters")
    layer, valid = make(50), torch.tensor([1, 2, 3, 6, 7, 10])
    hidden = torch.ones(B, T, dtype=torch.bool)
    hidden[:, valid] = False
    nan = x.masked_fill(hidden.unsqueeze(-1), torch.nan)
    for times in (t, None):
        wanted = layer(x[:, valid], None if times is None else times[:, valid])
        same(layer(nan, times, hidden)[:, valid], wanted, "a padding step is as if it were not there")


def last(make: Make) -> None:
    """``last`` is ``forward`` at the last step that is no padding."""
    x, t = sequence()
    hidden = torch.zeros(B, T, dtype=torch.bool)
    hidden[0, 7:] = True
    for size in (4, 50):
        layer = make(size)
        whole = layer(x, t, hidden)
        wanted = torch.stack([whole[0, 6], whole[1, T - 1]])
        same(layer.last(x, t, hidden), wanted, "last is forward at the last step that is no padding")


def gradients(make: Make) -> None:
    """Gradients are finite and reach the input and every trainable parameter."""
    for size in (4, 50):
        layer, (x, t) = make(size).train(), sequence()
        x.requires_grad_()
        (layer(x, t) * torch.linspace(-1, 1, D)).square().sum().backward()
        grad = x.grad
        demand(grad is not None and bool(grad.isfinite().all()), "the gradient of the input is not finite")
        assert grad is not None
        demand(bool((grad.abs().amax(dim=2) > 0).all()), "no gradient reaches some steps")
        for name, p in layer.named_parameters():
            if p.requires_grad:
                good = p.grad is not None and bool(p.grad.isfinite().all()) and bool(p.grad.any())
                demand(good, f"the parameter {name} gets no gradient, or one that is not finite")


def gaps(make: Make) -> None:
    """Times matter as ``time_sense`` says, in units of ``gap_s``, and no gap breaks a number."""
    x, t = sequence()
    layer = make(50)
    moved = bool((layer(x, t[:, :1] + 3 * (t - t[:, :1])) - layer(x, t)).abs().amax() > 1e-4)
    demand(moved == (layer.time_sense != "none"), f"times matter = {moved}, but time_sense = '{layer.time_sense}'")
    same(make(50, gap_s=10.0)(x, 10 * t), layer(x, t), "ten times the gaps are the same in units of gap_s", 1e-3)
    if layer.time_sense != "clock":
        same(make(4)(x, t + 64.0), make(4)(x, t), "when the clock was started does not matter", 1e-3)
    for gap in (0.0, 1e4):
        late = t.clone()
        late[:, 5:] += gap - (t[:, 5:6] - t[:, 4:5])
        late[1] = gap * torch.arange(T)
        for size in (4, 50):
            layer, row = make(size).train(), x.clone().requires_grad_()
            y = layer(row, late)
            y.sum().backward()
            numbers = [y, row.grad, *(p.grad for p in layer.parameters() if p.requires_grad)]
            good = all(g is not None and bool(g.isfinite().all()) for g in numbers)
            demand(good, f"a gap of {gap:g} s gives numbers that are not finite")


def past(make: Make) -> None:
    """The order and the times of the steps before the newest matter as ``past_sense`` says."""
    layer, (x, t) = make(50), sequence()
    declared = layer.past_sense or ("order" if layer.time_sense == "none" else "times")
    even = torch.arange(float(T)).expand(B, T)
    shuffled = torch.cat([torch.randperm(T - 1, generator=torch.Generator().manual_seed(1)), torch.tensor([T - 1])])
    # The gap before the newest step stays: it tells nothing of what was before.
    first, last = t[:, :1], t[:, -2:-1]
    retimed = torch.cat([first + (last - first) * ((t[:, :-1] - first) / (last - first)) ** 3, t[:, -1:]], 1)
    order = bool((layer(x[:, shuffled], even) - layer(x, even))[:, -1].abs().max() > 1e-5)
    times = bool((layer(x, retimed) - layer(x, t))[:, -1].abs().max() > 1e-5)
    measured = "times" if times else "order" if order else "bag"
    demand(measured == declared, f"of the past it feels '{measured}', but past_sense says '{declared}'")


def at(make: Make) -> None:
    """``at`` a step's time, with what it holds, is ``forward`` there, whatever comes later or is padding."""
    x, t = sequence()
    others, hidden = [i for i in range(T) if i != 6], torch.zeros(B, T, dtype=torch.bool)
    hidden[:, [4, 8]] = True
    for size in (4, 50):
        if (layer := make(size)).time_sense == "none":
            return
        for mask, rest in ((None, None), (hidden, hidden[:, others])):
            answer = layer.at(x[:, others], t[:, others], t[:, 6:7], x[:, 6:7], rest)
            same(answer[:, 0], layer(x, t, mask)[:, 6], "an answer at a step's time is that of the step")


def batch(make: Make) -> None:
    """Sequences of a batch do not meet."""
    layer, (x, t) = make(50), sequence()
    same(layer(x.flip(0), t.flip(0)), layer(x, t).flip(0), "the order of the batch does not matter")
    same(layer(x[:1], t[:1]), layer(x, t)[:1], "a sequence alone is as in a batch")


def state(make: Make) -> None:
    """A ``state_dict`` makes the same layer; in double precision it agrees with itself."""
    layer, (x, t) = make(50), sequence()
    other = make(50)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1.0)
    other.load_state_dict(layer.state_dict())
    single = layer(x, t)
    same(other(x, t), single, "a layer with the same state_dict is the same layer")
    double = layer.double()(x.double(), t.double())
    demand(double.dtype == torch.float64, "layer.double() does not answer in double precision")
    same(double.float(), single, "double precision agrees with single", 1e-3)
    known = {key for key, _ in layer.named_parameters()}
    demand(set(layer.optimizer_options()) <= known, "optimizer_options names what is no parameter")


LAWS: tuple[Callable[[Make], None], ...] = (
    shape, streaming, window, padding, last, gradients, gaps, past, at, batch, state
)  # fmt: skip
