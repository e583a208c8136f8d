"""Four float64 as one value of a kernel, which the compiler keeps in one register where the CPU has such.

`+ - * /`, sqrt4 and abs4 work place by place, and each place has the bits that the same operation on
single numbers gives: IEEE 754 fixes them.  Loops over arrays of four are vectorised by luck; this always is.
"""

import operator
from collections.abc import Iterable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

cgutils: Any = untyped_cgutils

_VECTOR = ir.VectorType(ir.DoubleType(), 4)
_ALIGNMENT = 8  # of a float64: rows may begin anywhere


class Fours(types.Type):
    """The type of four float64."""

    def __init__(self) -> None:
        super().__init__(name="Fours")


fours = Fours()


@register_model(Fours)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, _VECTOR)  # type: ignore[no-untyped-call]


def _define(operation: Any, instruction: str) -> None:
    """Let `a operation b` be one instruction."""

    @type_callable(operation)
    def _typed(_context: Any) -> Any:
        def result(a: Any, b: Any) -> Any:
            return fours if isinstance(a, Fours) and isinstance(b, Fours) else None

        return result

    @lower_builtin(operation, Fours, Fours)  # type: ignore[no-untyped-call]
    def _lowered(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


@intrinsic
def _load4(_typing_context: Any, table: Any, row: Any, column: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(context, builder, signature, arguments), align=_ALIGNMENT)

    return fours(table, types.intp, types.intp), codegen


@intrinsic
def _store4(_typing_context: Any, table: Any, row: Any, column: Any, value: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[3], _place(context, builder, signature, arguments), align=_ALIGNMENT)
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp, fours), codegen


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """A pointer to four consecutive numbers of a C-contiguous array."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    first = cgutils.get_item_pointer(context, builder, signature.args[0], array, list(arguments[1:3]))
    return builder.bitcast(first, _VECTOR.as_pointer())


@intrinsic
def _load_pairs4(_typing_context: Any, rows: Any, places: Any, first: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, c, d = (
            builder.load(pointer, align=_ALIGNMENT)
            for pointer in _pairs(context, builder, signature, arguments)
        )
        even = builder.shuffle_vector(a, c, _mask(range(4)))
        odd = builder.shuffle_vector(b, d, _mask(range(4)))
        columns = [builder.shuffle_vector(even, odd, _mask(taken)) for taken in ((0, 4, 2, 6), (1, 5, 3, 7))]
        return context.make_tuple(builder, signature.return_type, columns)

    both = types.UniTuple(fours, 2)  # type: ignore[no-untyped-call]
    return both(rows, places, types.intp), codegen


@intrinsic
def _store_pairs4(_typing_context: Any, rows: Any, places: Any, first: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        for i, pointer in enumerate(_pairs(context, builder, signature, arguments)):
            pair = builder.shuffle_vector(arguments[3], arguments[4], _mask((i, 4 + i)))
            builder.store(pair, pointer, align=_ALIGNMENT)
        return context.get_dummy_value()

    return types.void(rows, places, types.intp, fours, fours), codegen


def _mask(places: Iterable[int]) -> Any:
    chosen = list(places)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)


def _pairs(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Pointers to the pairs at four consecutive places of an array [n, 2]."""
    rows = context.make_array(signature.args[0])(context, builder, arguments[0])
    places = context.make_array(signature.args[1])(context, builder, arguments[1])
    pair, number = ir.VectorType(ir.DoubleType(), 2), ir.IntType(64)
    start = builder.bitcast(rows.data, pair.as_pointer())
    found = []
    for i in range(4):
        at = builder.add(arguments[2], number(i))
        place = builder.load(builder.gep(places.data, [at]), align=4)
        found.append(builder.gep(start, [builder.zext(place, number)]))
    return found


@intrinsic
def _spread4(_typing_context: Any, number: Any) -> Any:  # noqa: ARG001
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place, mask = ir.IntType(32), ir.Constant(ir.VectorType(ir.IntType(32), 4), [0] * 4)
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), arguments[0], place(0))
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), mask)

    return fours(types.float64), codegen


def _unary(name: str) -> Any:
    """An operation that LLVM has by this name."""

    @intrinsic
    def operation(_typing_context: Any, value: Any) -> Any:  # noqa: ARG001
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), f"llvm.{name}.v4f64"
            )
            return builder.call(function, arguments)

        return fours(fours), codegen

    return operation


@intrinsic
def _where_positive(_typing_context: Any, condition: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        condition, a, b = arguments
        positive = builder.fcmp_ordered(">", condition, ir.Constant(_VECTOR, [0.0] * 4))
        return builder.select(positive, a, b)

    return fours(fours, fours, fours), codegen


# load4(table, row, column) reads table[row, column : column + 4] of a C-contiguous array, and
# store4(table, row, column, value) writes it, without a check of bounds; spread4(x) is x four times.
# load_pairs4(rows, places, j) reads rows float64[2] of a C-contiguous array, at places uint32[j : j + 4], and
# returns their first and their second numbers; store_pairs4(rows, places, j, first, second) writes them.
# where_positive(c, a, b) is a where c > 0 and else b, place by place.
load4: Any = _load4
store4: Any = _store4
load_pairs4: Any = _load_pairs4
store_pairs4: Any = _store_pairs4
spread4: Any = _spread4
sqrt4: Any = _unary("sqrt")
abs4: Any = _unary("fabs")
where_positive: Any = _where_positive
