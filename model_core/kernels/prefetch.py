"""Ask the memory for a row of an array before it is needed."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

cgutils: Any = untyped_cgutils

_FOR_WRITING, _KEEP_IN_FIRST_LEVEL_CACHE, _IN_DATA_CACHE = 1, 3, 1


@intrinsic
def _prefetch_row(_typing_context: Any, rows: Any, row: Any) -> Any:  # noqa: ARG001 (numba gives both types)
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        first_column = context.get_constant(types.intp, 0)
        pointer = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, [arguments[1], first_column]
        )
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]), "llvm.prefetch.p0"
        )
        hints = [flag(_FOR_WRITING), flag(_KEEP_IN_FIRST_LEVEL_CACHE), flag(_IN_DATA_CACHE)]
        builder.call(prefetch, [builder.bitcast(pointer, byte), *hints])
        return context.get_dummy_value()

    return types.void(rows, types.intp), codegen


# In kernels, prefetch_row(rows, row) starts loading rows[row] of a C-contiguous array [n, m] into the
# first-level cache.  It changes nothing and cannot fail.
prefetch_row: Any = _prefetch_row
