"""Vectors of float64 lanes as a type of numba's, so that one source serves one number and many, bit for bit.

An arithmetic function written with these operations takes a float or a vector. Every lane of a vector then sees the
very IEEE operations, in the same order, that a float would see: nothing is left to the choices of an optimiser, which
may fuse or reorder in one loop and not in another. LLVM spreads a vector over the registers that the machine has.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

__all__ = [
    "ROUNDER", "WIDTH", "any_above", "at", "choose_equal", "choose_le", "choose_less", "choose_nan", "fma",
    "gather_like", "get", "lanes_of", "load4", "load8", "load16", "load32", "load_like", "power_of_two", "put", "root",
    "scatter", "size", "store", "store_some", "with_sign", "zero",
]  # fmt: skip

WIDTH = 32  # lanes of a vector of lanes
ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it moves the whole part of a small number into its last bits


class Vector(types.Type):
    """So many float64 numbers side by side."""

    def __init__(self, width):
        super().__init__(name=f"Vector({width})")
        self.width = width

    @property
    def key(self):
        """What tells two of them apart."""
        return self.width


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.VectorType(ir.DoubleType(), kind.width))


def _common(*kinds):
    """The type of an operation's result: a vector where any argument is one."""
    for kind in kinds:
        if isinstance(kind, Vector):
            return kind
    return types.float64


def _spread(context, builder, value, kind, wanted):
    """The value as ``wanted``: a number is repeated in every lane."""
    if isinstance(kind, Vector) or not isinstance(wanted, Vector):
        return value if isinstance(kind, Vector) else context.cast(builder, value, kind, types.float64)
    value = context.cast(builder, value, kind, types.float64)
    vector = ir.VectorType(ir.DoubleType(), wanted.width)
    index = ir.IntType(32)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, index(0))
    mask = ir.Constant(ir.VectorType(index, wanted.width), [0] * wanted.width)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), mask)


def _constant(kind, number):
    """The same number in every lane."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [number] * kind.count)
    return ir.Constant(kind, number)


def _intrinsic(builder, name, *values):
    """Call LLVM's operation of that name on numbers or vectors."""
    kind = values[0].type
    suffix = f"v{kind.count}f64" if isinstance(kind, ir.VectorType) else "f64"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * len(values)), f"llvm.{name}.{suffix}"
    )
    return builder.call(function, values)


def _operation(emit, *kinds):
    """(signature, code generator) of an operation on numbers or vectors: ``emit(builder, *values)``."""
    result = _common(*kinds)

    def generate(context, builder, sig, args):
        values = [_spread(context, builder, v, k, result) for v, k in zip(args, sig.args, strict=True)]
        return emit(builder, *values)

    return result(*kinds), generate


def _register(function, emit):
    """Teach an operator of Python vectors."""

    class Template(AbstractTemplate):
        def generic(self, args, kws):
            if any(isinstance(arg, Vector) for arg in args):
                return signature(_common(*args), *args)
            return None

    infer_global(function)(Template)

    def lowered(context, builder, sig, args):
        return _operation(emit, *sig.args)[1](context, builder, sig, args)

    for pair in ((Vector, Vector), (Vector, types.Float), (types.Float, Vector)):
        lower_builtin(function, *pair)(lowered)


_register(operator.add, lambda builder, a, b: builder.fadd(a, b))
_register(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_register(operator.mul, lambda builder, a, b: builder.fmul(a, b))
_register(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))


@intrinsic
def fma(typing, a, b, c):
    """A * b + c with one rounding, whatever the optimiser thinks."""
    return _operation(lambda builder, *values: _intrinsic(builder, "fma", *values), a, b, c)


@intrinsic
def root(typing, a):
    """The square root."""
    return _operation(lambda builder, value: _intrinsic(builder, "sqrt", value), a)


@intrinsic
def size(typing, a):
    """The absolute value."""
    return _operation(lambda builder, value: _intrinsic(builder, "fabs", value), a)


@intrinsic
def with_sign(typing, a, b):
    """The size of a with the sign of b."""
    return _operation(lambda builder, *values: _intrinsic(builder, "copysign", *values), a, b)


@intrinsic
def choose_less(typing, a, b, yes, no):
    """``yes`` in lanes where a < b, else ``no``, also where a or b is NaN."""
    return _operation(lambda builder, a, b, y, n: builder.select(builder.fcmp_ordered("<", a, b), y, n), a, b, yes, no)


@intrinsic
def choose_le(typing, a, b, yes, no):
    """``yes`` in lanes where a <= b, else ``no``, also where a or b is NaN."""
    return _operation(lambda builder, a, b, y, n: builder.select(builder.fcmp_ordered("<=", a, b), y, n), a, b, yes, no)


@intrinsic
def choose_equal(typing, a, b, yes, no):
    """``yes`` in lanes where a == b, else ``no``, also where a or b is NaN."""
    return _operation(lambda builder, a, b, y, n: builder.select(builder.fcmp_ordered("==", a, b), y, n), a, b, yes, no)


@intrinsic
def choose_nan(typing, a, yes, no):
    """``yes`` in lanes where a is NaN, else ``no``."""
    return _operation(lambda builder, a, y, n: builder.select(builder.fcmp_unordered("uno", a, a), y, n), a, yes, no)


@intrinsic
def power_of_two(typing, whole):
    """2**whole for whole numbers from -1022 to 1023, by writing the exponent; it works without integer conversions."""

    def emit(builder, value):
        lanes = isinstance(value.type, ir.VectorType)
        integers = ir.VectorType(ir.IntType(64), value.type.count) if lanes else ir.IntType(64)
        shifted = builder.fadd(value, _constant(value.type, ROUNDER + 1023))
        bits = builder.shl(builder.bitcast(shifted, integers), _constant(integers, 52))
        return builder.bitcast(bits, value.type)

    return _operation(emit, whole)


# ---- memory ----------------------------------------------------------------------------------------------


def _address(context, builder, kind, array, index, vector):
    data = context.make_array(kind)(context, builder, array).data
    pointer = builder.gep(data, [index])
    return builder.bitcast(pointer, vector.as_pointer()) if vector is not None else pointer


@intrinsic
def at(typing, array, index):
    """array[index] of a flat array for an index that is not negative, which numba would test for every time."""

    def generate(context, builder, sig, args):
        where = context.cast(builder, args[1], sig.args[1], types.intp)
        return builder.load(_address(context, builder, sig.args[0], args[0], where, None))

    return array.dtype(array, index), generate


def _loader(width):
    @intrinsic
    def load(typing, array, index):
        result = Vector(width)

        def generate(context, builder, sig, args):
            where = context.cast(builder, args[1], sig.args[1], types.intp)
            vector = ir.VectorType(ir.DoubleType(), width)
            return builder.load(_address(context, builder, sig.args[0], args[0], where, vector), align=8)

        return result(array, index), generate

    return load


load4, load8, load16, load32 = _loader(4), _loader(8), _loader(16), _loader(32)


def _row_index(context, builder, sig, args):
    """Where a row of the table begins, plus the lane."""
    place = context.cast(builder, args[1], sig.args[1], types.intp)
    if sig.args[0].ndim == 1:
        return place
    if sig.args[0].ndim == 3:
        return builder.mul(place, ir.Constant(place.type, WIDTH))
    lane = context.cast(builder, args[2], sig.args[2], types.intp)
    table = context.make_array(sig.args[0])(context, builder, args[0])
    lanes = builder.extract_value(table.shape, 1)
    return builder.add(builder.mul(place, lanes), lane)


@intrinsic
def lanes_of(typing, table):
    """How many lanes a table has; the compiler knows it of a table (places,), one, and of (places, 1, WIDTH)."""

    def generate(context, builder, sig, args):
        if table.ndim == 2:
            return builder.extract_value(context.make_array(table)(context, builder, args[0]).shape, 1)
        return ir.Constant(context.get_value_type(types.intp), 1 if table.ndim == 1 else WIDTH)

    return types.intp(table), generate


@intrinsic
def get(typing, table, place, lane):
    """What stands at a place: a number of a flat table, WIDTH lanes from ``lane`` on of a table (places, lanes).

    A table (places, 1, WIDTH) has one vector a place, and the compiler knows it.
    """
    result = types.float64 if table.ndim == 1 else Vector(WIDTH)

    def generate(context, builder, sig, args):
        vector = None if sig.args[0].ndim == 1 else ir.VectorType(ir.DoubleType(), WIDTH)
        where = _row_index(context, builder, sig, args)
        return builder.load(_address(context, builder, sig.args[0], args[0], where, vector), align=8)

    return result(table, place, lane), generate


@intrinsic
def zero(typing, table):
    """What ``get`` would find at a place that holds nothing but zeros."""
    result = types.float64 if table.ndim == 1 else Vector(WIDTH)
    return result(table), lambda context, builder, sig, args: _spread(
        context, builder, ir.Constant(ir.DoubleType(), 0.0), types.float64, result
    )


@intrinsic
def put(typing, table, place, lane, value):
    """Write what ``get`` reads."""
    result = types.float64 if table.ndim == 1 else Vector(WIDTH)

    def generate(context, builder, sig, args):
        vector = None if sig.args[0].ndim == 1 else ir.VectorType(ir.DoubleType(), WIDTH)
        value = _spread(context, builder, args[3], sig.args[3], result)
        where = _row_index(context, builder, sig, args)
        builder.store(value, _address(context, builder, sig.args[0], args[0], where, vector), align=8)
        return context.get_dummy_value()

    return types.void(table, place, lane, value), generate


@intrinsic
def load_like(typing, like, array, index):
    """A vector as wide as ``like`` from a flat array."""

    def generate(context, builder, sig, args):
        where = context.cast(builder, args[2], sig.args[2], types.intp)
        return builder.load(_address(context, builder, sig.args[1], args[1], where, args[0].type), align=8)

    return like(like, array, index), generate


@intrinsic
def store(typing, array, index, vector):
    """Write a vector into a flat array from an index on."""

    def generate(context, builder, sig, args):
        where = context.cast(builder, args[1], sig.args[1], types.intp)
        builder.store(args[2], _address(context, builder, sig.args[0], args[0], where, args[2].type), align=8)
        return context.get_dummy_value()

    return types.void(array, index, vector), generate


@intrinsic
def store_some(typing, array, index, vector, count):
    """Write the first ``count`` numbers of a vector into a flat array from an index on, and nothing behind them."""

    def generate(context, builder, sig, args):
        value, width, number = args[2], args[2].type.count, ir.IntType(64)
        where = context.cast(builder, args[1], sig.args[1], types.intp)
        counted = context.cast(builder, args[3], sig.args[3], types.int64)
        lanes = ir.VectorType(number, width)
        single = builder.insert_element(ir.Constant(lanes, ir.Undefined), counted, ir.IntType(32)(0))
        limit = builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width))
        mask = builder.icmp_signed("<", ir.Constant(lanes, list(range(width))), limit)
        pointer = _address(context, builder, sig.args[0], args[0], where, value.type)
        kind = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, ir.IntType(32), mask.type])
        name = f"llvm.masked.store.v{width}f64.p0v{width}f64"
        masked = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(masked, [value, pointer, ir.IntType(32)(8), mask])
        return context.get_dummy_value()

    return types.void(array, index, vector, count), generate


@intrinsic
def gather_like(typing, like, values, places, first):
    """values[places[first + k]] for k = 0, 1, ...: as many as ``like`` is wide."""

    def generate(context, builder, sig, args):
        vector = ir.Constant(args[0].type, ir.Undefined)
        start = context.cast(builder, args[3], sig.args[3], types.intp)
        for k in range(args[0].type.count):
            where = builder.add(start, ir.Constant(start.type, k))
            place = builder.load(_address(context, builder, sig.args[2], args[2], where, None))
            number = builder.load(_address(context, builder, sig.args[1], args[1], place, None))
            vector = builder.insert_element(vector, number, ir.IntType(32)(k))
        return vector

    return like(like, values, places, first), generate


@intrinsic
def scatter(typing, values, places, first, count, vector):
    """values[places[first + k]] = vector[k] for k < count, by way of the stack."""

    def generate(context, builder, sig, args):
        space = cgutils.alloca_once(builder, args[4].type)
        builder.store(args[4], space)
        numbers = builder.bitcast(space, ir.DoubleType().as_pointer())
        start, count = (context.cast(builder, args[k], sig.args[k], types.intp) for k in (2, 3))
        with cgutils.for_range(builder, count) as loop:
            at = _address(context, builder, sig.args[1], args[1], builder.add(start, loop.index), None)
            to = _address(context, builder, sig.args[0], args[0], builder.load(at), None)
            builder.store(builder.load(builder.gep(numbers, [loop.index])), to)
        return context.get_dummy_value()

    return types.void(values, places, first, count, vector), generate


@intrinsic
def any_above(typing, a, b):
    """Whether a > b in any lane."""

    def emit(builder, left, right):
        found = builder.fcmp_ordered(">", left, right)
        if isinstance(found.type, ir.VectorType):
            bits = ir.IntType(found.type.count)
            found = builder.icmp_unsigned("!=", builder.bitcast(found, bits), ir.Constant(bits, 0))
        return found

    _, generate = _operation(emit, a, b)
    return types.boolean(a, b), lambda context, builder, sig, args: generate(context, builder, sig, args)
