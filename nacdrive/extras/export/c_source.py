"""``export_c``: a policy as one C99 file and a header that need nothing but libm, and a program to try them.

The functions are the files of ``c/``, joined as a network needs them; sizes and weights are written before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from textwrap import wrap

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, file_checksum, write_text
from nacdrive.common.version import __version__
from nacdrive.extras.export.network_description import (
    CfCStep,
    DenseStep,
    Linear,
    NACKeyStep,
    NACStep,
    NetworkDescription,
    RecurrentStep,
    describe,
    without_idle_neurons,
)
from nacdrive.models import load_policy

PARTS = Path(__file__).parent / "c"
BLOCKS = (12, 20, 24, 32)
"""Channels that are computed together. Shorter loops compilers unroll before they vectorise, and then do not."""
PAIR_BLOCK = 24
"""Command neurons that are computed together."""
ROW = 110


def export_c(model: Path, out: Path) -> list[Path]:
    """Write a policy as C: ``NAME.c``, which ``out`` is or is a folder for, ``NAME.h``, ``NAME_try.c``."""
    target = out if out.suffix == ".c" else out / f"{model.stem}.c"
    texts = c_source(describe(load_policy(model)), target.stem, model)
    files = [target, target.with_suffix(".h"), target.with_name(f"{target.stem}_try.c")]
    for path, text in zip(files, texts, strict=True):
        write_text(path, named(text, identifier(target.stem)))
    return files


def write_frames(path: Path, frames: Iterable[NDArray[np.uint8]], t_s: Iterable[float]) -> None:
    """Frames [height, width, 3] and their times as the program beside the C reads them."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        for frame, t in zip(frames, t_s, strict=True):
            file.write(np.float64(t).tobytes() + np.ascontiguousarray(frame, dtype=np.uint8).tobytes())


def identifier(name: str) -> str:
    """``name`` as C takes it."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
    if not word:
        raise UserError(f"'{name}' has no letter that C could call functions by: give --out a file such as policy.c.")
    return f"policy_{word}" if word[0].isdigit() else word


def comment(text: str) -> str:
    """``text`` out of a model file as a part of a comment, which it cannot end."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("??", "? ?")


def c_source(net: NetworkDescription, stem: str, model: Path) -> tuple[str, str, str]:
    """The C of a network made from the file ``model``, its header ``stem``.h, and the program to try them."""
    parts = _Sequence.of(net)
    scratch = scratch_size(net)
    project = net.projection
    projection = [] if project is None else arrays_of("projection", by_pixels(net, project.weight), project.bias)
    header = fill(
        "policy.h",
        title=comment(f"{net.name}: drives '{net.task}', sequence layer {net.model}"),
        about="\n   ".join(wrap(comment(meaning(net)), 112, break_long_words=False, break_on_hyphens=False)),
        version=__version__,
        source=comment(model.name),
        sha256=file_checksum(model),
        height=net.preprocessing.height,
        width=net.preprocessing.width,
        outputs=len(net.labels),
        actions=len(net.actions),
        window=parts.window,
        gap_s=number(net.gap_s),
        or_goes_back=" or goes back" if parts.checks_order else "",
        held="" if len(net.labels) != 1 else "; always 0, the speed is held by others",
        outputs_meaning="score of each action" if len(net.actions) else "as the network gives them, not limited",
        memory="\n".join(parts.memory) or "    char unused;",
        scratch=scratch,
        state_kb=round((2 * scratch * 4 + parts.memory_floats * 4) / 1000),
    )
    code = "\n".join(
        [
            f"/* {comment(net.name)}: see {stem}.h. Made by nacdrive {__version__}; rather export anew than edit. */",
            "",
            f'#include "{stem}.h"',
            "",
            "#include <math.h>",
            "#include <string.h>",
            "",
            f"#define ROWS {net.preprocessing.rows}",
            f"#define COLUMNS {net.preprocessing.columns}",
            f"#define ACTIVATION(x) {net.activation}_of(x)",
            f"#define FEATURES {net.features}",
            f"#define D_MODEL {net.hidden.weight.shape[1]}",
            f"#define HIDDEN {len(net.hidden.bias)}",
            *parts.constants,
            "",
            labels(net),
            *frame_arrays(net),
            *convolution_arrays(net),
            *projection,
            *parts.arrays,
            *arrays_of("hidden", net.hidden.weight.T, net.hidden.bias),
            *arrays_of("output", net.output.weight.T, net.output.bias),
            *([array("actions", net.actions)] if len(net.actions) else []),
            "",
            part("functions.c"),
            frame_function(net),
            *convolution_functions(net),
            parts.code,
            step_function(net),
        ]
    )
    return code, header, part("try.c").replace('"policy.h"', f'"{stem}.h"')


def meaning(net: NetworkDescription) -> str:
    """What goes in and what comes out, in words."""
    p = net.preprocessing
    given = f"A frame is {p.height} x {p.width} RGB bytes. "
    if len(net.actions):
        return given + f"It chooses among {len(net.actions)} actions: {', '.join(net.labels)}."
    more = " and the pedal" if len(net.labels) > 1 else "; throttle and brake are held by others"
    return given + f"It gives the steering, -1 full left .. 1 full right{more}."


def part(file: str) -> str:
    """A piece of C as it stands in ``c/``."""
    return (PARTS / file).read_text(encoding="utf-8")


def fill(file: str, **values: object) -> str:
    """A piece of C with its ``$names`` filled in."""
    return Template(part(file)).substitute(values)


def named(text: str, name: str) -> str:
    """``text`` with the names that it shows to others made the policy's own."""
    # Names alone, and no file that is called like one.
    text = re.sub(r"\bpolicy_(?=(?:state|action|reset|step|labels|try)\b(?![-.]))", f"{name}_", text)
    return re.sub(r"\bPOLICY_(?=[A-Z_]+\b(?![-.]))", f"{name.upper()}_", text)


def number(value: float) -> str:
    """A float32 in C, as short as reads back as itself."""
    text = str(np.float32(value))
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def array(name: str, values: NDArray[np.floating] | NDArray[np.integer]) -> str:
    """A constant array of the shape of ``values``."""
    kind = "int" if np.issubdtype(values.dtype, np.integer) else "float"
    shape = "".join(f"[{n}]" for n in values.shape)
    if not np.isfinite(values).all():
        raise UserError(f"the model's weights hold numbers that are not finite ({name}): train or copy it anew.")
    lines: list[str] = []

    def nested(part: NDArray[np.floating] | NDArray[np.integer]) -> None:
        if part.ndim > 1:
            for i, inner in enumerate(part):
                lines.append("{" if i == 0 else ",{")
                nested(inner)
                lines.append("}")
            return
        written = [str(v) if kind == "int" else ("0" if v == 0 else number(v)) for v in part]
        line = ""
        for item in written:
            if len(line) + len(item) > ROW:
                lines.append(line)
                line = ""
            line += f"{item},"
        lines.append(line)

    nested(values)
    # Braces of their own lines are many: they share one with what they hold.
    text = re.sub(r"\n?(,?)\{\n", r"\n\1{", "\n".join(lines)).replace("\n}", "}")
    return f"static const {kind} {name}{shape} = {{{text.strip()}}};"


def arrays_of(name: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> list[str]:
    """The arrays of a linear layer."""
    return [array(f"{name}_weight", weight), array(f"{name}_bias", bias)]


def labels(net: NetworkDescription) -> str:
    """Names of the outputs."""
    quoted = ", ".join('"' + re.sub(r'["\\\r\n]', "", label) + '"' for label in net.labels)
    return f"const char *const policy_labels[POLICY_OUTPUTS] = {{{quoted}}};"


def frame_arrays(net: NetworkDescription) -> list[str]:
    """What resizing is made with."""
    p = net.preprocessing
    if p.down is None or p.across is None:
        return []
    parts = [
        f"#define FIRST_ROW {p.first_row}",
        f"#define KEPT_ROWS {int(p.down.first.max()) + p.down.weight.shape[1]}",
        f"#define DOWN_TAPS {p.down.weight.shape[1]}",
        f"#define ACROSS_TAPS {p.across.weight.shape[1]}",
        array("down_first", p.down.first),
        array("down_weight", p.down.weight),
        array("across_first", p.across.first),
        array("across_weight", p.across.weight),
    ]
    if p.turn is not None:
        rows = ", ".join("{" + ", ".join(map(repr, row)) + "}" for row in p.turn)
        parts.append(f"static const double turn[3][3] = {{{rows}}};")
    if p.colour is not None and p.offset is not None:
        parts += [array("colour", p.colour.T), array("offset", p.offset)]
    return parts


def frame_function(net: NetworkDescription) -> str:
    """From bytes to numbers."""
    p = net.preprocessing
    if p.down is None:
        return part("frame.c")
    code, row = "", "const uint8_t *in = frame + (FIRST_ROW + row) * POLICY_WIDTH * 3;"
    if p.turn is not None:
        code = part("frame_upright.c") + "\n"
        row = "uint8_t in[POLICY_WIDTH * 3];\n        upright(frame, FIRST_ROW + row, in);"
    and_yuv, colour = "", "rgb[c]"
    if p.colour is not None:
        and_yuv = ", turn into YUV"
        colour = "colour[c][0] * rgb[0] + colour[c][1] * rgb[1] + colour[c][2] * rgb[2] + offset[c]"
    return code + fill("frame_resized.c", and_yuv=and_yuv, colour=colour, row=row)


def block_of(channels: int) -> int:
    """How many channels are computed together: the largest block that wastes least."""
    return min(BLOCKS, key=lambda block: (-(-channels // block) * block, -block))


def convolution_arrays(net: NetworkDescription) -> list[str]:
    """Weights as ``convolution.c`` wants them."""
    parts = []
    for i, layer in enumerate(net.convolutions, 1):
        block = block_of(len(layer.bias))
        weight = padded(layer.weight.transpose(0, 2, 3, 1), 0, block)
        arranged = weight.reshape(-1, block, weight[0].size).transpose(0, 2, 1).reshape(-1)
        parts += [array(f"weight_{i}", arranged), array(f"bias_{i}", padded(layer.bias, 0, block))]
    return parts


def convolution_functions(net: NetworkDescription) -> list[str]:
    """One function per convolution, its sizes written out."""
    parts, shapes = [], net.shapes()
    for i, layer in enumerate(net.convolutions, 1):
        (channels_in, rows_in, columns_in), (channels, rows, columns) = shapes[i - 1], shapes[i]
        block = block_of(channels)
        text = fill(
            "convolution.c",
            channels_in=channels_in, rows_in=rows_in, columns_in=columns_in, channels=channels, rows=rows,
            columns=columns, kernel=layer.weight.shape[2], stride=layer.stride, block=block,
            blocks=-(-channels // block),
        )  # fmt: skip
        parts.append(text.replace("_LAYER", f"_{i}"))
    return parts


def scratch_size(net: NetworkDescription) -> int:
    """Floats that the larger of what a layer reads and writes takes."""
    p = net.preprocessing
    sizes = [int(np.prod(shape)) for shape in net.shapes()]
    if p.down is not None:
        sizes.append((int(p.down.first.max()) + p.down.weight.shape[1]) * p.columns * 3)
    return max(sizes)


def step_function(net: NetworkDescription) -> str:
    """``reset`` and ``step``."""
    masked, rows = "", net.preprocessing.masked_rows
    if rows is not None:
        first, last = rows
        masked = (
            f"    /* Rows {first} to {last - 1} are not for the network to see. */\n"
            f"    for (int i = {first} * COLUMNS * 3; i < {last} * COLUMNS * 3; i++) a[i] = 0.0f;\n"
        )
    calls = [f"    convolution_{i}({'a, b' if i % 2 else 'b, a'});" for i, _ in enumerate(net.convolutions, 1)]
    decide = part("decide_choice.c" if len(net.actions) else "decide_continuous.c").rstrip("\n")
    features = "b" if len(net.convolutions) % 2 else "a"
    if net.projection is not None:
        calls.append(
            "    float projected[FEATURES];\n"
            f"    linear({features}, {np.prod(net.feature_shape())}, &projection_weight[0][0], projection_bias, "
            "FEATURES, projected);"
        )
        features = "projected"
    return fill("step.c", masked=masked, convolutions="\n".join(calls), features=features, decide=decide)


@dataclass(frozen=True)
class _Sequence:
    """The C of a sequence layer."""

    constants: list[str]
    arrays: list[str]
    code: str
    memory: list[str]
    memory_floats: int
    window: int
    checks_order: bool = False

    @staticmethod
    def of(net: NetworkDescription) -> _Sequence:
        step = net.sequence
        if isinstance(step, NACStep):
            return _nac(net, without_idle_neurons(step))
        if isinstance(step, NACKeyStep):
            return _nac_key(net, step)
        if isinstance(step, DenseStep):
            return _Sequence([], linear_arrays(net, "dense", step.layer), part("dense.c"), [], 0, 1)
        arrays = linear_arrays(net, "input", step.input)
        arrays.append(array("recurrent_weight", step.recurrent.T))
        width, window = len(step.input.bias), step.window
        memory = [f"    float input[POLICY_WINDOW][{width}]; /* the frames' share of the gates */"]
        if isinstance(step, CfCStep):
            arrays += arrays_of("heads", step.heads.weight.T, step.heads.bias)
            sizes = [f"#define BACKBONE {width}", f"#define TIME_SCALE {number(step.gap_s)}"]
            memory.append("    float t[POLICY_WINDOW]; /* when they were taken, seconds */")
            return _Sequence(sizes, arrays, part("cfc.c"), memory, window * (width + 1), window)
        assert isinstance(step, RecurrentStep)
        if step.kind == "gru":
            arrays.append(array("recurrent_bias", step.recurrent_bias))
        return _Sequence([], arrays, part(f"{step.kind}.c"), memory, window * width, window)


def of_features(net: NetworkDescription, weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """[F, outputs] of a weight [outputs, F] on what the sequence layer gets of a frame."""
    return by_pixels(net, weight) if net.projection is None else weight.T


def by_pixels(net: NetworkDescription, weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """[n, outputs] of a weight [outputs, n] whose inputs are flattened by channels, for pixels of all channels."""
    channels, rows, columns = net.feature_shape()
    return weight.reshape(-1, channels, rows, columns).transpose(2, 3, 1, 0).reshape(-1, len(weight))


def linear_arrays(net: NetworkDescription, name: str, layer: Linear) -> list[str]:
    """A linear layer on the features."""
    return arrays_of(name, of_features(net, layer.weight), layer.bias)


def padded(x: NDArray[np.float32], axis: int, multiple: int) -> NDArray[np.float32]:
    """``x`` with zeros behind it along ``axis``."""
    missing = -x.shape[axis] % multiple
    return np.pad(x, [(0, missing if i == axis % x.ndim else 0) for i in range(x.ndim)])


def _nac(net: NetworkDescription, step: NACStep) -> _Sequence:
    inters = 8 if step.inter is not None else PAIR_BLOCK
    first_query, first_key = padded(step.first_query, 2, inters), padded(step.first_key, 2, inters)
    motor = padded(step.motor, 1, PAIR_BLOCK)
    inter, command = first_query.shape[2], motor.shape[1]
    heads, depth, window = step.heads, step.head_dim, step.window
    gates = np.concatenate([of_features(net, gate.weight) for gate in (step.query, step.key, step.value)], axis=1)
    phi = {"sigmoid": "sigmoid_of(x)", "tanh": "tanh_of(x)", "none": "(x)"}[step.phi]
    sizes = [
        f"#define HEADS {heads}",
        f"#define D_HEAD {depth}",
        f"#define INTER {inter}",
        f"#define COMMAND {command}",
        f"#define TOPK {step.topk}",
        f"#define UNFOLDS {step.unfolds}",
        f"#define EPS {number(step.eps)}",
        f"#define TIME_SCALE {number(step.time_scale)}",
        f"#define CHECKS_ORDER {int(step.time_input == 'gap')}",
        f"#define CIRCUIT(x) {step.activation}_of(x)",
        f"#define PHI(x) {phi}",
    ]
    arrays = [
        *arrays_of("sensory", gates, np.concatenate([step.query.bias, step.key.bias, step.value.bias])),
        array("first_query", first_query),
        array("first_key", first_key),
        array("first_bias", padded(step.first_bias, 1, inters)),
        array("motor_weight", motor),
        *(array(name, getattr(step, name)) for name in ("motor_bias", "time_query", "time_key", "time_bias")),
        array("logit_scale", step.logit_scale),
        *arrays_of("out", step.out.weight.T, step.out.bias),
    ]
    inter_part, command_part = "    float(*s)[COMMAND] = z;\n", ""
    if step.inter is not None and step.inter_bias is not None:
        weight = padded(padded(step.inter, 1, inters), 2, PAIR_BLOCK)
        arranged = weight.reshape(heads, inter, -1, PAIR_BLOCK).transpose(0, 2, 1, 3)
        arrays += arrays_of("inter", arranged, padded(step.inter_bias, 1, PAIR_BLOCK))
        inter_part = part("nac_inter.c")
    if step.command is not None and step.command.any():
        sources, targets = np.nonzero((step.command != 0).any(axis=0))
        sizes.append(f"#define EDGES {len(sources)}")
        arrays += [
            array("command_from", sources),
            array("command_to", targets),
            array("command_weight", step.command[:, sources, targets]),
        ]
        command_part = part("nac_command.c")
    taus = {"gap": "gap", "absolute": "t / TIME_SCALE", "elapsed": "(t - state->t[slot]) / TIME_SCALE"}
    quadrature = "time" if step.time_quadrature else number(step.delta_t)
    parts = {"inter_part": inter_part, "command_part": command_part, "choose": part("nac_choose.c")}
    code = fill("nac.c", **parts, tau=taus[step.time_input], quadrature=quadrature)
    width = heads * depth
    memory = [
        f"    float key[POLICY_WINDOW][{width}];",
        f"    float value[POLICY_WINDOW][{width}];",
        f"    float first[POLICY_WINDOW][{heads * inter}]; /* the keys' share of the circuit's first layer */",
        f"    float time[POLICY_WINDOW][{2 * heads}]; /* and of the time gate: slope, offset */",
        "    float t[POLICY_WINDOW]; /* when the frames were taken, seconds */",
        "    float last_t;",
    ]
    floats = window * (2 * width + heads * (inter + 2) + 1)
    return _Sequence(sizes, arrays, f"{settle(step)}\n{code}", memory, floats, window, step.time_input == "gap")


def settle(step: NACStep | NACKeyStep) -> str:
    """The function that solves the logit's equation."""
    if step.mode != "euler":
        return part(f"nac_{step.mode}.c")
    h = number(step.euler_step_s) if step.euler_step_s is not None else f"t / {number(step.euler_steps)}"
    return fill("nac_euler.c", steps=step.euler_steps, h=h)


def _nac_key(net: NetworkDescription, step: NACKeyStep) -> _Sequence:
    width, window = step.heads * step.head_dim, step.window
    sizes = [
        f"#define HEADS {step.heads}",
        f"#define D_HEAD {step.head_dim}",
        f"#define INTER {len(step.inter.bias)}",
        f"#define COMMAND {len(step.command.bias)}",
        f"#define TOPK {step.topk}",
        f"#define FREQUENCIES {len(step.frequencies)}",
        f"#define TIME_SCALE {number(step.time_scale)}",
        f"#define NORM_EPS {number(step.norm_eps)}",
    ]
    # A projection's outputs have no pixels; without one the features, and what belongs to each, go by pixels.
    order = of_features(net, np.arange(net.features, dtype=np.float32)[None])[:, 0].astype(int)
    timed = np.concatenate([order, np.arange(net.features, step.key.weight.shape[1])])
    inputs = {"query": timed, "key": timed, "value": order, "inter": order}
    arrays = arrays_of("norm", step.norm.weight[order], step.norm.bias[order])
    for name in ("query", "key", "value", "inter", "command", "motor", "out"):
        layer: Linear = getattr(step, name)
        arrays += arrays_of(name, layer.weight[:, inputs.get(name, slice(None))].T, layer.bias)
    arrays.append(array("gamma_of", step.gamma))
    arrays += [array("frequencies", step.frequencies)] if len(step.frequencies) else []
    memory = [
        f"    float key[POLICY_WINDOW][{width}];",
        f"    float value[POLICY_WINDOW][{width}];",
        f"    float gates[POLICY_WINDOW][{3 * step.heads}]; /* phi, omega and rho of the heads */",
        "    float t[POLICY_WINDOW]; /* when the frames were taken, seconds */",
    ]
    code = fill("nac_key.c", choose=part("nac_choose.c"))
    floats = window * (2 * width + 3 * step.heads + 1)
    return _Sequence(sizes, arrays, f"{settle(step)}\n{code}", memory, floats, window)
