"""CPU kernels of the pair backbone, compiled by numba: 96 pairs side by side, absent synapses skipped.

Neurons are rows of ``WIDTH`` pairs, so that one synapse is one multiply-add of whole vectors whichever neurons it
joins: lists of synapses replace matrices that are half zeros. Numba's own loops would keep sums in memory instead of
registers, hence the innermost loops are written as vector instructions (``intrinsic``); LLVM makes of them what the
processor has (AVX-512, AVX2, NEON).

All arguments of kernels are addresses and sizes (int64): nothing is converted, and each compiles once. All files with
code that ends up in a kernel must be this one, because numba's cache notices changes of this one only.
"""

# Numba and llvmlite have no types, and are absent where the extra is not installed.
# mypy: disallow-untyped-decorators=false, disallow-untyped-calls=false, warn-return-any=false
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# By NUMBA_DISABLE_JIT, as people do who debug or measure coverage.
DISABLED = bool(getattr(config, "DISABLE_JIT", False))
LANES = 16  # of a vector: one AVX-512 register, two of AVX2, four of NEON
GROUPS = 6  # vectors of a row: as many sums as hide the latency of a multiply-add and fit into AVX2's 16 registers
WIDTH = LANES * GROUPS
CHAINS = 4  # sums side by side where a row is a single vector
LARGEST = 80.0  # beyond it sigmoid is 0 or 1, and its exponential must not overflow

FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
BYTE, INT32, INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
# 2^f on [-1/2, 1/2], the least possible relative error of this degree: 7.5e-8.
POLYNOMIAL = (1.3276472028e-3, 9.6755414800e-3, 5.5507132747e-2, 2.4022119721e-1, 6.9314696706e-1, 1.0000000717)
ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then stands in the lowest bits


class _Code:
    """Vector instructions at the end of a builder's block."""

    def __init__(self, builder: Any, context: Any) -> None:
        self.b, self.context = builder, context

    def at(self, base: Any, offset: Any, of: Any = FLOAT) -> Any:
        """Pointer to element ``offset`` behind an address."""
        pointer = self.b.inttoptr(base, ir.PointerType())
        return self.b.gep(pointer, [_int(offset)], source_etype=of)

    def load(self, base: Any, offset: Any, of: Any = VECTOR) -> Any:
        scalar = FLOAT if of is VECTOR else of
        return self.b.load(self.at(base, offset, scalar), typ=of, align=scalar_bytes(scalar))

    def store(self, x: Any, base: Any, offset: Any) -> None:
        self.b.store(x, self.at(base, offset), align=4)

    def splat(self, scalar: Any, of: Any = VECTOR) -> Any:
        one = self.b.insert_element(ir.Constant(of, ir.Undefined), scalar, ir.Constant(INT32, 0))
        return self.b.shuffle_vector(one, ir.Constant(of, ir.Undefined), ir.Constant(_ints(), [0] * LANES))

    def call(self, name: str, *args: Any) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR] * len(args))
        function = cgutils.get_or_insert_function(self.b.module, kind, f"{name}.v{LANES}f32")
        return self.b.call(function, args)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return self.call("llvm.fmuladd", a, b, c)

    def sigmoid(self, z: Any) -> Any:
        """1 / (1 + exp(-z)), to about 3e-7 relative."""
        b = self.b
        z = self.call("llvm.minnum", self.call("llvm.maxnum", z, _all(-LARGEST)), _all(LARGEST))
        # exp(-z) = 2^(n + f)
        shifted = self.multiply_add(z, _all(-math.log2(math.e)), _all(ROUNDER))
        n = b.fsub(shifted, _all(ROUNDER))
        f = self.multiply_add(z, _all(-math.log2(math.e)), b.fneg(n))
        p = _all(POLYNOMIAL[0])
        for coefficient in POLYNOMIAL[1:]:
            p = self.multiply_add(p, f, _all(coefficient))
        power = b.shl(b.bitcast(shifted, _ints()), ir.Constant(_ints(), [23] * LANES))
        e = b.bitcast(b.add(b.bitcast(p, _ints()), power), VECTOR)
        # "fast" lets the processor take its approximate reciprocal and one Newton step.
        return b.fdiv(_all(1.0), b.fadd(e, _all(1.0)), flags=("fast",))

    def transposed(self, rows: list[Any]) -> list[Any]:
        """16 vectors of 16 as their columns: one bit of row and column number changes places at a time."""
        for bit in (1, 2, 4, 8):
            kept = [j if not j & bit else LANES + j - bit for j in range(LANES)]
            moved = [j + bit if not j & bit else LANES + j for j in range(LANES)]
            new = list(rows)
            for i in range(LANES):
                if not i & bit:
                    for to, order in ((i, kept), (i + bit, moved)):
                        new[to] = self.b.shuffle_vector(rows[i], rows[i + bit], ir.Constant(_ints(), order))
            rows = new
        return rows

    def first_lanes(self, count: Any) -> Any:
        """Mask of the first ``count`` lanes."""
        wide = ir.VectorType(INT64, LANES)
        return self.b.icmp_signed("<", ir.Constant(wide, list(range(LANES))), self.splat(count, wide))

    def load_some(self, base: Any, offset: Any, mask: Any) -> Any:
        """The lanes of ``mask``, the others 0 and not read."""
        kind = ir.FunctionType(VECTOR, [ir.PointerType(), INT32, ir.VectorType(ir.IntType(1), LANES), VECTOR])
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
        return self.b.call(function, [self.at(base, offset), ir.Constant(INT32, 4), mask, _all(0.0)])

    def store_some(self, x: Any, base: Any, offset: Any, mask: Any) -> None:
        """The lanes of ``mask``; the others are not touched."""
        types_ = [VECTOR, ir.PointerType(), INT32, ir.VectorType(ir.IntType(1), LANES)]
        kind = ir.FunctionType(ir.VoidType(), types_)
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        self.b.call(function, [x, self.at(base, offset), ir.Constant(INT32, 4), mask])


def scalar_bytes(kind: Any) -> int:
    """Size of a scalar type of LLVM."""
    return {FLOAT: 4, DOUBLE: 8}.get(kind) or kind.width // 8


def _ints() -> Any:
    return ir.VectorType(INT32, LANES)


def _int(x: Any) -> Any:
    return ir.Constant(INT64, x) if isinstance(x, int) else x


def _all(x: float) -> Any:
    return ir.Constant(VECTOR, [float(np.float32(x))] * LANES)


def emitted(result: Any = types.void, last: Any = types.int64) -> Callable[[Callable[..., Any]], Any]:
    """Makes of what writes instructions the intrinsic of int64 arguments, but for the ``last``, with that result."""

    def decorate(write: Callable[..., Any]) -> Any:
        @wraps(write)  # numba asks for the number of arguments
        def type_and_codegen(_: Any, *arguments: Any) -> Any:
            def codegen(context: Any, builder: Any, _: Any, values: Iterable[Any]) -> Any:
                value = write(_Code(builder, context), *values)
                return context.get_dummy_value() if value is None else value

            return result(*[types.int64] * (len(arguments) - 1), last), codegen

        return intrinsic(type_and_codegen)

    return decorate


def _rows_times(
    c: _Code, groups: int, chains: int, out: Any, rows: Any, x: Any, bias: Any, first: Any, source: Any, weight: Any
) -> None:
    """See ``synapses``; sums run in ``chains`` parts, of which lists hold whole numbers."""
    b = c.b
    sums = [cgutils.alloca_once(b, VECTOR) for _ in range(groups * chains)]
    with cgutils.for_range(b, rows) as row:
        start = c.splat(c.load(bias, row.index, FLOAT))
        line = b.mul(row.index, _int(groups * LANES))
        for i, s in enumerate(sums):
            b.store(b.fadd(start, c.load(out, b.add(line, _int(i * LANES)))) if i < groups else _all(0.0), s)
        begin = c.load(first, row.index, INT64)
        end = c.load(first, b.add(row.index, _int(1)), INT64)
        with cgutils.for_range_slice(b, begin, end, _int(chains), INT64) as (synapse, _):
            for chain in range(chains):
                here = b.add(synapse, _int(chain))
                w = c.splat(c.load(weight, here, FLOAT))
                at = b.sext(c.load(source, here, INT32), INT64)
                for g in range(groups):
                    s = sums[chain * groups + g]
                    b.store(c.multiply_add(w, c.load(x, b.add(at, _int(g * LANES))), b.load(s)), s)
        for g in range(groups):
            total = b.load(sums[g])
            for chain in range(1, chains):
                total = b.fadd(total, b.load(sums[chain * groups + g]))
            c.store(total, out, b.add(line, _int(g * LANES)))


@emitted()
def synapses(
    c: _Code, groups: Any, out: Any, rows: Any, x: Any, bias: Any, first: Any, source: Any, weight: Any
) -> None:
    """Add ``bias`` and weight times row ``source`` of ``x``, for a row's synapses ``first[row]`` to ``first[row + 1]``.

    Rows have ``groups`` vectors: ``GROUPS``, or 1; then lists come in fours, whose sums do not wait for each other.
    """
    with c.b.if_else(c.b.icmp_signed("==", groups, _int(1))) as (narrow, wide):
        with narrow:
            _rows_times(c, 1, CHAINS, out, rows, x, bias, first, source, weight)
        with wide:
            _rows_times(c, GROUPS, 1, out, rows, x, bias, first, source, weight)


@emitted()
def synapse_gradients(c: _Code, sums: Any, rows: Any, g: Any, x: Any, first: Any, source: Any) -> None:
    """Add to vector ``synapse`` of ``sums`` row ``row`` of ``g`` times row ``source`` of ``x``, lane by lane."""
    b = c.b
    with cgutils.for_range(b, rows) as row:
        line = b.mul(row.index, _int(WIDTH))
        of_row = [c.load(g, b.add(line, _int(i * LANES))) for i in range(GROUPS)]
        begin = c.load(first, row.index, INT64)
        end = c.load(first, b.add(row.index, _int(1)), INT64)
        with cgutils.for_range_slice(b, begin, end, _int(1), INT64) as (synapse, _):
            at = b.sext(c.load(source, synapse, INT32), INT64)
            place = b.mul(synapse, _int(LANES))
            total = c.load(sums, place)
            for i in range(GROUPS):
                total = c.multiply_add(of_row[i], c.load(x, b.add(at, _int(i * LANES))), total)
            c.store(total, sums, place)


def _each_vector(make: Callable[[_Code, Any, Any], Any]) -> Any:
    """Intrinsic of (out, x, vectors): each vector of ``out`` becomes what ``make`` gives for it and that of ``x``."""

    def write(c: _Code, out: Any, x: Any, vectors: Any) -> None:
        with cgutils.for_range(c.b, vectors) as loop:
            at = c.b.mul(loop.index, _int(LANES))
            c.store(make(c, c.load(out, at), c.load(x, at)), out, at)

    return emitted()(write)


squash = _each_vector(lambda c, out, x: c.sigmoid(x))
squash_backward = _each_vector(lambda c, g, y: c.b.fmul(g, c.b.fmul(y, c.b.fsub(_all(1.0), y))))
"""Multiplies gradients by y (1 - y), the sigmoid's slope where it is y."""
add_vectors = _each_vector(lambda c, out, x: c.b.fadd(out, x))
copy_vectors = _each_vector(lambda c, out, x: x)
clear_vectors = _each_vector(lambda c, out, x: _all(0.0))
"""Of ``x``, which is not read, give ``out`` again."""


@emitted()
def gather_inter(c: _Code, out: Any, width: Any, line: Any, zq: Any, zk: Any, queries: Any, keys: Any) -> None:
    """Inter neurons of 16 pairs: sigmoid of the sum of both halves, as ``width`` rows ``line`` floats apart.

    ``queries`` and ``keys`` are the addresses of 16 offsets into ``zq`` and ``zk``, in floats.
    """
    b = c.b
    of_query = [c.load(queries, lane, INT64) for lane in range(LANES)]
    of_key = [c.load(keys, lane, INT64) for lane in range(LANES)]
    whole = b.and_(width, _int(-LANES))

    def tile(first: Any, read: Callable[[Any, Any], Any]) -> None:
        rows = []
        for lane in range(LANES):
            q, k = read(zq, b.add(of_query[lane], first)), read(zk, b.add(of_key[lane], first))
            rows.append(b.fadd(q, k))
        at = b.mul(first, line)
        for row in c.transposed(rows):
            c.store(c.sigmoid(row), out, at)
            at = b.add(at, line)

    with cgutils.for_range_slice(b, _int(0), whole, _int(LANES), INT64) as (first, _):
        tile(first, c.load)
    with b.if_then(b.icmp_signed("<", whole, width)):
        mask = c.first_lanes(b.sub(width, whole))
        tile(whole, lambda base, offset: c.load_some(base, offset, mask))


@emitted()
def scatter_inter(c: _Code, g: Any, width: Any, line: Any, gq: Any, gk: Any, queries: Any, keys: Any) -> None:
    """Add the gradients of 16 pairs' first layer to the rows of both halves that ``gather_inter`` read."""
    b = c.b
    of_query = [c.load(queries, lane, INT64) for lane in range(LANES)]
    of_key = [c.load(keys, lane, INT64) for lane in range(LANES)]
    whole = b.and_(width, _int(-LANES))
    same = cgutils.alloca_once(b, VECTOR)

    def tile(first: Any, read: Callable[[Any, Any], Any], save: Callable[[Any, Any, Any], None]) -> None:
        at = b.mul(first, line)
        rows = []
        for _ in range(LANES):
            rows.append(c.load(g, at))
            at = b.add(at, line)
        b.store(_all(0.0), same)
        for lane, x in enumerate(c.transposed(rows)):
            place = b.add(of_key[lane], first)
            save(b.fadd(read(gk, place), x), gk, place)
            # Neighbours mostly share their query: one sum for all of them.
            b.store(b.fadd(b.load(same), x), same)
            last = lane == LANES - 1
            with b.if_then(
                ir.Constant(ir.IntType(1), 1) if last else b.icmp_signed("!=", of_query[lane], of_query[lane + 1])
            ):
                place = b.add(of_query[lane], first)
                save(b.fadd(read(gq, place), b.load(same)), gq, place)
                b.store(_all(0.0), same)

    with cgutils.for_range_slice(b, _int(0), whole, _int(LANES), INT64) as (first, _):
        tile(first, c.load, c.store)
    with b.if_then(b.icmp_signed("<", whole, width)):
        mask = c.first_lanes(b.sub(width, whole))
        tile(whole, lambda x, o: c.load_some(x, o, mask), lambda v, x, o: c.store_some(v, x, o, mask))


def _number_at(number: Any, scalar: Any) -> Any:
    """Intrinsic that gives as ``number`` the ``scalar`` that is ``offset`` of these behind an address."""

    @emitted(number)
    def read(c: _Code, base: Any, offset: Any) -> Any:
        x = c.load(base, offset, scalar)
        return c.b.zext(x, INT64) if scalar is BYTE else x

    return read


def _put_number(number: Any, scalar: Any) -> Any:
    """Intrinsic that writes a ``number`` there."""

    @emitted(last=number)
    def write(c: _Code, base: Any, offset: Any, x: Any) -> None:
        c.b.store(x, c.at(base, offset, scalar), align=scalar_bytes(scalar))

    return write


byte_at = _number_at(types.int64, BYTE)
int_at, put_int = _number_at(types.int64, INT64), _put_number(types.int64, INT64)
float_at, put_float = _number_at(types.float32, FLOAT), _put_number(types.float32, FLOAT)
double_at, put_double = _number_at(types.float64, DOUBLE), _put_number(types.float64, DOUBLE)


@emitted(types.float32)
def sum_at(c: _Code, base: Any, offset: Any) -> Any:
    """Sum of the vector ``offset`` floats behind an address."""
    x = c.load(base, offset)
    half = LANES
    while half > 1:
        half //= 2
        order = ir.Constant(_ints(), [(j + half) % LANES for j in range(LANES)])
        x = c.b.fadd(x, c.b.shuffle_vector(x, x, order))
    return c.b.extract_element(x, ir.Constant(INT32, 0))


@emitted()
def copy_bytes(c: _Code, out: Any, x: Any, count: Any) -> None:
    """Write ``count`` bytes of ``x`` to ``out``, which do not overlap."""
    cgutils.raw_memcpy(c.b, c.at(out, 0, BYTE), c.at(x, 0, BYTE), count, 1)


@emitted()
def project(c: _Code, out: Any, width: Any, bias: Any, x: Any, depth: Any, weight: Any) -> None:
    """Write ``bias [width]`` + ``x [depth]`` times ``weight [depth, width]``."""
    b = c.b
    total = cgutils.alloca_once(b, VECTOR)
    with cgutils.for_range_slice(b, _int(0), width, _int(LANES), INT64) as (first, _):
        mask = c.first_lanes(b.sub(width, first))
        b.store(c.load_some(bias, first, mask), total)
        with cgutils.for_range(b, depth) as row:
            w = c.load_some(weight, b.add(b.mul(row.index, width), first), mask)
            b.store(c.multiply_add(c.splat(c.load(x, row.index, FLOAT)), w, b.load(total)), total)
        c.store_some(b.load(total), out, first, mask)


@emitted()
def sum_groups(c: _Code, sums: Any, x: Any, rows: Any) -> None:
    """Add to vector ``row`` of ``sums`` the vectors of row ``row`` of ``x``."""
    b = c.b
    with cgutils.for_range(b, rows) as row:
        place, line = b.mul(row.index, _int(LANES)), b.mul(row.index, _int(WIDTH))
        total = c.load(sums, place)
        for i in range(GROUPS):
            total = b.fadd(total, c.load(x, b.add(line, _int(i * LANES))))
        c.store(total, sums, place)


class Synapses(NamedTuple):
    """Addresses of the synapses between two layers, once by target and once by source; weights of head after head."""

    number: int  # of a head
    first: int  # [targets + 1] int64: where each target's synapses begin
    source: int  # [number] int32: the other end, in floats from the layer's first row
    weight: int  # [H, number] float32
    first_back: int  # the same by source: [sources + 1], ...
    target: int
    weight_back: int
    bias: int  # [H, targets] float32
    sums: int  # [number] vectors: gradient of the weights of one head
    bias_sums: int  # [targets] vectors
    gradient: int  # [H, number] float32
    bias_gradient: int  # [H, targets] float32


class Sizes(NamedTuple):
    """Of the circuit: see ``FusedWeights``; ``updates`` are the unfolds behind the first."""

    inter: int
    commands: int
    sources: int
    targets: int
    first_source: int
    updates: int
    zeros: int  # address of as many float32 zeros as a layer has neurons


class Pairs(NamedTuple):
    """Which pairs: addresses and sizes. ``rows`` and ``allowed`` are 0 where all keys, and where all are allowed."""

    queries: int
    slots: int  # keys per query
    queries_apart: int  # rows of the queries' table from head to head
    keys_apart: int  # of the keys' table
    first_query: int
    first_key: int
    rows: int  # [H, q, n] int64, from the keys' table's start
    allowed: int  # [H or 1, q, n] bool
    allowed_apart: int  # bytes from head to head
    motor: int  # [H, 2, q, n] float32: motor neurons, or their gradients


class Tables(NamedTuple):
    """Addresses of both halves of the first layer, ``[H, N, I]`` and ``[H, M, I]``, and of their gradients."""

    zq: int
    zk: int
    gq: int
    gk: int


class Buffers(NamedTuple):
    """Addresses of rows of ``WIDTH`` floats, and of ``WIDTH`` int64 each for the pairs at hand."""

    inter: int
    command: int
    source: int  # of each update
    updated: int
    motor: int
    ginter: int
    gcommand: int
    gsource: int
    gupdated: int
    of_query: int
    of_key: int
    place: int


def _type(of: Any) -> Any:
    return types.NamedUniTuple(types.int64, len(of._fields), of)


KINDS = [_type(k) for k in (Sizes, Synapses, Synapses, Synapses, Pairs, Tables, Buffers)]


def _reader(*kinds: Any) -> Any:
    """Intrinsic that reads such tuples, one behind the other, from the int64 numbers at an address."""
    whole = types.Tuple([_type(of) for of in kinds])

    @emitted(whole)
    def read(c: _Code, base: Any) -> Any:
        offsets = iter(range(sum(len(of._fields) for of in kinds)))
        fields = [[c.load(base, next(offsets), INT64) for _ in of._fields] for of in kinds]
        parts = [c.context.make_tuple(c.b, _type(of), each) for of, each in zip(kinds, fields, strict=True)]
        return c.context.make_tuple(c.b, whole, parts)

    return read


CIRCUIT = (Sizes, Synapses, Synapses, Synapses, Buffers)
read_circuit, read_given = _reader(*CIRCUIT), _reader(*CIRCUIT, Pairs, Tables)
FLOATS = WIDTH * 4  # bytes of a row
VECTOR_BYTES = LANES * 4


def _compiled(signature: Any, nogil: bool = False) -> Callable[[Any], Any]:
    """``njit`` for one signature, kept on disk where that can be written."""

    def compiled(function: Any) -> Any:
        try:
            return njit(signature, cache=True, nogil=nogil)(function)
        except (RuntimeError, OSError):  # numba finds no folder for its cache, or cannot write there
            return njit(signature, nogil=nogil)(function)

    return compiled


@_compiled(types.void(types.int64, types.int64, *KINDS[:4], KINDS[6]))
def _forward(groups: int, head: int, n: Any, two: Any, again: Any, three: Any, b: Any) -> None:
    """Motor neurons of the pairs whose inter neurons are there; rows have ``groups`` vectors."""
    line = VECTOR_BYTES * groups
    s = b.command
    clear_vectors(s, s, n.commands * groups)
    bias, weight = two.bias + 4 * head * n.commands, two.weight + 4 * head * two.number
    synapses(groups, s, n.commands, b.inter, bias, two.first, two.source, weight)
    before = s
    bias, weight = again.bias + 4 * head * n.targets, again.weight + 4 * head * again.number
    for r in range(n.updates):
        read = b.source + line * r * n.sources
        squash(read, before + line * n.first_source, n.sources * groups)
        before = s
        if r < n.updates - 1:
            before = b.updated
            copy_vectors(before, s, n.commands * groups)
        synapses(groups, before, n.targets, read, bias, again.first, again.source, weight)
    squash(s, s, n.commands * groups)
    clear_vectors(b.motor, b.motor, 2 * groups)
    weight = three.weight + 4 * head * three.number
    synapses(groups, b.motor, 2, s, three.bias + 8 * head, three.first, three.source, weight)


@_compiled(types.void(types.int64, *KINDS[:4], KINDS[6]))
def _backward(head: int, n: Any, two: Any, again: Any, three: Any, b: Any) -> None:
    """From the gradients ``b.motor`` to those of the inter neurons' sums (``b.ginter``) and of the weights."""
    gs = b.gcommand
    clear_vectors(gs, gs, n.commands * GROUPS)
    weight = three.weight_back + 4 * head * three.number
    synapses(GROUPS, gs, n.commands, b.motor, n.zeros, three.first_back, three.target, weight)
    squash_backward(gs, b.command, n.commands * GROUPS)
    synapse_gradients(three.sums, 2, b.motor, b.command, three.first, three.source)
    sum_groups(three.bias_sums, b.motor, 2)
    gu = gs
    for i in range(n.updates):
        source = b.source + FLOATS * (n.updates - 1 - i) * n.sources
        sum_groups(again.bias_sums, gu, n.targets)
        synapse_gradients(again.sums, n.targets, gu, source, again.first, again.source)
        clear_vectors(b.gsource, b.gsource, n.sources * GROUPS)
        weight = again.weight_back + 4 * head * again.number
        synapses(GROUPS, b.gsource, n.sources, gu, n.zeros, again.first_back, again.target, weight)
        squash_backward(b.gsource, source, n.sources * GROUPS)
        gu = b.gupdated
        if i < n.updates - 1:
            clear_vectors(gu, gu, n.commands * GROUPS)
            copy_vectors(gu + FLOATS * n.first_source, b.gsource, n.sources * GROUPS)
        add_vectors(gs + FLOATS * n.first_source, b.gsource, n.sources * GROUPS)
    sum_groups(two.bias_sums, gs, n.commands)
    synapse_gradients(two.sums, n.commands, gs, b.inter, two.first, two.source)
    clear_vectors(b.ginter, b.ginter, n.inter * GROUPS)
    weight = two.weight_back + 4 * head * two.number
    synapses(GROUPS, b.ginter, n.inter, gs, n.zeros, two.first_back, two.target, weight)
    squash_backward(b.ginter, b.inter, n.inter * GROUPS)


@_compiled(types.void(types.int64, *KINDS, types.int64, types.int64))
def _chunk(head: int, n: Any, two: Any, again: Any, three: Any, p: Any, t: Any, b: Any, count: int, back: int) -> None:
    """``count`` pairs, collected in ``b``: motor neurons, or with ``back`` the gradients."""
    for i in range(count, WIDTH):  # the rest repeats the last pair, with no gradient
        put_int(b.of_query, i, int_at(b.of_query, count - 1))
        put_int(b.of_key, i, int_at(b.of_key, count - 1))
    for g in range(GROUPS):
        apart = 8 * LANES * g
        gather_inter(b.inter + VECTOR_BYTES * g, n.inter, WIDTH, t.zq, t.zk, b.of_query + apart, b.of_key + apart)
    _forward(GROUPS, head, n, two, again, three, b)
    size = p.queries * p.slots
    motor = p.motor + 8 * head * size
    if back == 0:
        for i in range(count):
            place = int_at(b.place, i)
            put_float(motor, place, float_at(b.motor, i))
            put_float(motor, place + size, float_at(b.motor, WIDTH + i))
        return
    clear_vectors(b.motor, b.motor, 2 * GROUPS)
    for i in range(count):
        place = int_at(b.place, i)
        put_float(b.motor, i, float_at(motor, place))
        put_float(b.motor, WIDTH + i, float_at(motor, place + size))
    _backward(head, n, two, again, three, b)
    for g in range(GROUPS):
        apart = 8 * LANES * g
        scatter_inter(b.ginter + VECTOR_BYTES * g, n.inter, WIDTH, t.gq, t.gk, b.of_query + apart, b.of_key + apart)


@_compiled(types.void(types.int64, types.int64, KINDS[1]))
def _add_up(head: int, targets: int, w: Any) -> None:
    """Add the vectors of one head to the gradients of its weights, and clear them."""
    for i in range(w.number):
        at = head * w.number + i
        put_float(w.gradient, at, float_at(w.gradient, at) + sum_at(w.sums, i * LANES))
    for i in range(targets):
        at = head * targets + i
        put_float(w.bias_gradient, at, float_at(w.bias_gradient, at) + sum_at(w.bias_sums, i * LANES))
    clear_vectors(w.sums, w.sums, w.number)
    clear_vectors(w.bias_sums, w.bias_sums, targets)


@_compiled(types.void(*[types.int64] * 4), nogil=True)
def run(first_head: int, last_head: int, given: int, back: int) -> None:
    """All pairs of some heads: motor neurons, or with ``back`` the gradients of all that these come from.

    ``given`` is the address of the fields of ``Sizes``, three ``Synapses``, ``Buffers``, ``Pairs`` and ``Tables``:
    tuples as arguments would take numba longer than a live step.
    """
    n, two, again, three, b, p, t = read_given(given)
    for head in range(first_head, last_head):
        of_query = (head * p.queries_apart + p.first_query) * n.inter
        of_key = (head * p.keys_apart + p.first_key) * n.inter
        count = 0
        for i in range(p.queries * p.slots):
            if p.allowed != 0 and byte_at(p.allowed, head * p.allowed_apart + i) == 0:
                continue
            query = i // p.slots
            put_int(b.place, count, i)
            put_int(b.of_query, count, of_query + query * n.inter)
            if p.rows != 0:
                put_int(b.of_key, count, int_at(p.rows, head * p.queries * p.slots + i) * n.inter)
            else:
                put_int(b.of_key, count, of_key + (i - query * p.slots) * n.inter)
            count += 1
            if count == WIDTH:
                _chunk(head, n, two, again, three, p, t, b, count, back)
                count = 0
        if count > 0:
            _chunk(head, n, two, again, three, p, t, b, count, back)
        if back != 0:
            _add_up(head, n.commands, two)
            if n.updates > 0:
                _add_up(head, n.targets, again)
            _add_up(head, 2, three)


class Step(NamedTuple):
    """One live step: addresses and sizes; see ``NAC.step``."""

    batch: int
    window: int
    depth: int
    width: int  # of a row of the memory: k, v, inter neurons, slope and offset of the time gate
    qkv: int  # [B, 3 H D]
    halves: int  # [2 H, D, I + 2]
    halves_bias: int  # [2 H, I + 2]
    before: int  # [H, B, W, width]
    memory: int  # the same, one step on
    of_query: int  # [H, B, I + 2]


class Attended(NamedTuple):
    """What a live step pairs its query with, and how."""

    slots: int  # n, at most
    seen: int  # steps in the memory, at its end
    chosen: int  # [H, B, n] int64 slots of the memory; 0 if not given
    allowed: int  # [H, B, n] bool, of ``chosen``; 0 for all
    scores: int  # [H, B, W] float32: the n best of these are chosen; 0 for all slots
    tau: int  # [B] float32, or [B, W] lags
    lags: int  # whether they are
    scale: int  # [H] float32; 0 for none
    gated: int  # whether the score counts
    phi: int  # 0 sigmoid, 1 tanh, 2 none
    mode: int  # 0 exact, 1 Euler, 2 steady
    steps: int  # of Euler
    numbers: int  # eps, fixed step of Euler or 0, delta_t or 0 for the time quadrature
    picked: int  # [n] int64, for the kernel's use
    weights: int  # [2, n] float64, the same
    y: int  # [B, H D]


ATTENDED = _type(Attended)
read_step, read_attended = _reader(Step), _reader(Attended)


@_compiled(types.void(types.int64, types.int64))
def advance(heads: int, given: int) -> None:
    """Shift the memory by a step and write the newest; what the query brings to its pairs goes to ``of_query``.

    ``given`` is the address of the fields of ``Step``.
    """
    s = read_step(given)[0]
    wide = s.width - 2 * s.depth
    across = heads * s.depth
    for head in range(heads):
        bias, half = s.halves_bias + 4 * head * wide, s.halves + 4 * head * s.depth * wide
        for i in range(s.batch):
            of_q = s.qkv + 4 * (i * 3 * across + head * s.depth)
            project(s.of_query + 4 * (head * s.batch + i) * wide, wide, bias, of_q, s.depth, half)
            here = 4 * (head * s.batch + i) * s.window * s.width
            copy_bytes(s.memory + here, s.before + here + 4 * s.width, 4 * (s.window - 1) * s.width)
            row = s.memory + here + 4 * (s.window - 1) * s.width
            copy_bytes(row, of_q + 4 * across, 4 * s.depth)
            copy_bytes(row + 4 * s.depth, of_q + 8 * across, 4 * s.depth)
            # The keys' halves stand behind those of the queries.
            key_bias, key_half = bias + 4 * heads * wide, half + 4 * heads * s.depth * wide
            project(row + 8 * s.depth, wide, key_bias, of_q + 4 * across, s.depth, key_half)


@_compiled(types.float64(types.float64))
def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


@_compiled(types.float64(types.float64, types.float64, types.float64, ATTENDED))
def _logit(content: float, rate: float, t: float, a: Any) -> float:
    """See ``pairwise.attend`` and ``dynamics``."""
    phi = content
    if a.phi == 0:
        phi = _sigmoid(content)
    elif a.phi == 1:
        phi = math.tanh(content)
    # softplus, without overflow
    omega = max(rate, 0.0) + math.log1p(math.exp(-abs(rate))) + float_at(a.numbers, 0)
    if a.mode == 2:
        return phi / omega
    if a.mode == 1:
        h = float(float_at(a.numbers, 1))
        if h == 0.0:
            h = t / a.steps
        h = min(h, 1.0 / omega)
        total = 1.0
        for _ in range(a.steps - 1):
            total = 1.0 + (1.0 - h * omega) * total
        return h * phi * total
    x = omega * t
    return phi * t if x == 0.0 else phi * t * (-math.expm1(-x) / x)


@_compiled(types.int64(types.int64, types.int64, ATTENDED))
def _pick(cell: int, window: int, a: Any) -> int:
    """Write the slots that the newest step is paired with to ``a.picked``; their number."""
    count = 0
    if a.chosen != 0:
        for i in range(cell * a.slots, (cell + 1) * a.slots):
            if a.allowed == 0 or byte_at(a.allowed, i) != 0:
                put_int(a.picked, count, int_at(a.chosen, i))
                count += 1
        return count
    if a.scores == 0:
        for slot in range(window - a.seen, window):
            put_int(a.picked, count, slot)
            count += 1
        return count
    for slot in range(window - a.seen, window):
        score = float_at(a.scores, cell * window + slot)
        if count == a.slots and score <= float_at(a.scores, cell * window + int_at(a.picked, count - 1)):
            continue
        at = min(count, a.slots - 1)
        while at > 0 and float_at(a.scores, cell * window + int_at(a.picked, at - 1)) < score:
            put_int(a.picked, at, int_at(a.picked, at - 1))
            at -= 1
        put_int(a.picked, at, slot)
        count = min(count + 1, a.slots)
    return count


@_compiled(types.void(*[types.int64] * 4))
def attend(heads: int, circuit: int, step: int, attended: int) -> None:
    """Attention of the newest step to the chosen slots of the memory.

    ``circuit`` is the address of the fields of ``Sizes``, three ``Synapses`` and ``Buffers``; the others of theirs.
    """
    n, two, again, three, b = read_circuit(circuit)
    s, a = read_step(step)[0], read_attended(attended)[0]
    wide = n.inter + 2
    across = heads * s.depth
    for cell in range(heads * s.batch):
        head, i = cell // s.batch, cell % s.batch
        of_q = s.of_query + 4 * cell * wide
        top = -math.inf
        slots = _pick(cell, s.window, a)
        for first in range(0, slots, LANES):
            count = min(LANES, slots - first)
            for lane in range(LANES):
                slot = int_at(a.picked, first + min(lane, count - 1))
                put_int(b.of_query, lane, 0)
                put_int(b.of_key, lane, (cell * s.window + slot) * s.width)
            gather_inter(b.inter, n.inter, LANES, of_q, s.memory + 8 * s.depth, b.of_query, b.of_key)
            _forward(1, head, n, two, again, three, b)
            for lane in range(count):
                row = s.memory + 4 * int_at(b.of_key, lane)
                at = first + lane
                tau = float_at(a.tau, i * s.window + int_at(a.picked, at)) if a.lags != 0 else float_at(a.tau, i)
                last = s.width - 2
                slope = float(float_at(row, last)) + float_at(of_q, n.inter)
                t = _sigmoid(tau * slope + float_at(row, last + 1) + float_at(of_q, n.inter + 1))
                logit = _logit(float_at(b.motor, lane), float_at(b.motor, LANES + lane), t, a)
                if a.scale != 0:
                    logit *= float_at(a.scale, head)
                if a.gated != 0:
                    score = 0.0
                    query = s.qkv + 4 * (i * 3 * across + head * s.depth)
                    for d in range(s.depth):
                        score += float(float_at(row, d)) * float_at(query, d)
                    logit += score / math.sqrt(s.depth)
                put_double(a.weights, at, logit)
                put_double(a.weights, a.slots + at, t)
                top = max(top, logit)
        y = a.y + 4 * (i * across + head * s.depth)
        total = 0.0
        for at in range(slots):
            e = math.exp(double_at(a.weights, at) - top)
            total += e
            put_double(a.weights, at, e)
        fixed = float(float_at(a.numbers, 2))
        for d in range(s.depth):
            value = 0.0
            for at in range(slots):
                factor = fixed if fixed != 0.0 else double_at(a.weights, a.slots + at)
                place = (cell * s.window + int_at(a.picked, at)) * s.width + s.depth + d
                value += double_at(a.weights, at) * factor * float_at(s.memory, place)
            put_float(y, d, value / total)
