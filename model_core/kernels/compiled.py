"""Compilation of kernels that only work on their caller's arrays, and the instructions that numba lacks.

All that relies on parts of numba that its documentation does not promise stands here: the option `_nrt`, and
`numba.core.cgutils` for the code of the instructions.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., object])

# Without numba's reference counts: two atomic operations for each array at each call made the text kernels
# ten times slower.  A kernel so compiled can allocate nothing, and its caller keeps every array alive.
# A division by 0 gives what IEEE 754 says, not an exception.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": False}


def kernel(function: Function) -> Function:
    """Compile at the first call, and keep the machine code beside the source."""
    compiled: Function = njit(**_OPTIONS)(function)
    return compiled


def inlined_kernel(function: Function) -> Function:
    """The same for a function on a hot path, where passing a dozen arrays costs more than what it does."""
    compiled: Function = njit(forceinline=True, **_OPTIONS)(function)
    return compiled


cgutils: Any = untyped_cgutils

_FOR_WRITING, _KEEP_IN_FIRST_LEVEL_CACHE, _IN_DATA_CACHE = 1, 3, 1


def _prefetch(context: Any, builder: Any, array_type: Any, array: Any, place: list[Any]) -> Any:
    array = context.make_array(array_type)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, array_type, array, place)
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    prefetch = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]), "llvm.prefetch.p0"
    )
    hints = [flag(_FOR_WRITING), flag(_KEEP_IN_FIRST_LEVEL_CACHE), flag(_IN_DATA_CACHE)]
    builder.call(prefetch, [builder.bitcast(pointer, byte), *hints])
    return context.get_dummy_value()


@intrinsic
def _prefetch_row(_typing_context: Any, rows: Any, row: Any) -> Any:  # noqa: ARG001 (numba gives both types)
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first_column = context.get_constant(types.intp, 0)
        return _prefetch(context, builder, signature.args[0], arguments[0], [arguments[1], first_column])

    return types.void(rows, types.intp), codegen


@intrinsic
def _prefetch_item(_typing_context: Any, items: Any, item: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _prefetch(context, builder, signature.args[0], arguments[0], [arguments[1]])

    return types.void(items, types.intp), codegen


@intrinsic
def _prefetch_place(_typing_context: Any, rows: Any, row: Any, column: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _prefetch(context, builder, signature.args[0], arguments[0], [arguments[1], arguments[2]])

    return types.void(rows, types.intp, types.intp), codegen


BYTES_A_MASK = 64


@intrinsic
def _mask_of_ends(_typing_context: Any, text: Any, start: Any, first: Any, second: Any) -> Any:  # noqa: ARG001
    vector, byte = ir.VectorType(ir.IntType(8), BYTES_A_MASK), ir.IntType(8)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], array, [arguments[1]])
        found = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=1)
        ends = builder.icmp_unsigned("<=", found, ir.Constant(vector, [ord(" ")] * BYTES_A_MASK))
        for one in (byte(127), arguments[2], arguments[3]):
            ends = builder.or_(ends, builder.icmp_unsigned("==", found, repeated(builder, one)))
        return builder.bitcast(ends, ir.IntType(BYTES_A_MASK))

    def repeated(builder: Any, one: Any) -> Any:
        undefined, place = ir.Constant(vector, ir.Undefined), ir.IntType(32)
        places = ir.Constant(ir.VectorType(place, BYTES_A_MASK), [0] * BYTES_A_MASK)
        return builder.shuffle_vector(builder.insert_element(undefined, one, place(0)), undefined, places)

    return types.uint64(text, types.intp, types.uint8, types.uint8), codegen


@intrinsic
def _mask_beyond_ascii(_typing_context: Any, text: Any, start: Any) -> Any:  # noqa: ARG001
    vector = ir.VectorType(ir.IntType(8), BYTES_A_MASK)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], array, [arguments[1]])
        found = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=1)
        beyond = builder.icmp_signed("<", found, ir.Constant(vector, [0] * BYTES_A_MASK))
        return builder.bitcast(beyond, ir.IntType(BYTES_A_MASK))

    return types.uint64(text, types.intp), codegen


@intrinsic
def _trailing_zeros(_typing_context: Any, bits: Any) -> Any:  # noqa: ARG001
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), codegen


# mask_of_ends(text, start, first, second) looks at the BYTES_A_MASK bytes of uint8 text from `start` on: bit
# i of the uint64 is set where byte i ends a word, as blanks and control characters of ASCII do, and `first`
# and `second`; mask_beyond_ascii(text, start) has the bits of bytes that are not ASCII.
# trailing_zeros(bits) is the int64 place of the lowest bit of a uint64 that is set, or 64.
mask_of_ends: Any = _mask_of_ends
mask_beyond_ascii: Any = _mask_beyond_ascii
trailing_zeros: Any = _trailing_zeros

# In kernels, prefetch_row(rows, row) starts loading rows[row] of a C-contiguous array [n, m] into the
# first-level cache, prefetch_item(items, item) the line that holds items[item] of an array [n], and
# prefetch_place(rows, row, column) the line that holds rows[row, column].  They change nothing and cannot
# fail.
prefetch_row: Any = _prefetch_row
prefetch_item: Any = _prefetch_item
prefetch_place: Any = _prefetch_place
