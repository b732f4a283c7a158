"""Three machine instructions that Numba does not offer: a wide product, a prefetch, a vector dot product.

A plain loop over float32 numbers must add them one after the other, and waits for each sum. Letting the compiler
reorder the additions ("fast math") would be fast, but the last bit would then depend on where the loop was inlined.
In `dot` sixteen sums run side by side and are added up as a tree: fast, and the same bits everywhere.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped
from numba.extending import intrinsic

cgutils: Any = untyped

LINE = 16  # float32 numbers in a cache line


def _dot(context: Any, weights: Any, x: Any, lines: Any) -> Any:
    vector, number = ir.VectorType(ir.FloatType(), LINE), ir.IntType(32)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right = (builder.inttoptr(address, vector.as_pointer()) for address in args[:2])
        sums = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LINE))
        builder.store(ir.Constant(vector, [0.0] * LINE), sums)
        with cgutils.for_range(builder, args[2], intp=ir.IntType(64)) as loop:
            parts = []
            for start in (left, right):
                load = builder.load(builder.gep(start, [loop.index]))
                load.align = 4
                parts.append(load)
            builder.store(builder.fadd(builder.load(sums), builder.fmul(*parts)), sums)
        total = builder.load(sums)
        half = LINE // 2
        while half:  # 16 sums to 8, to 4, to 2, to 1
            low = ir.Constant(ir.VectorType(number, half), list(range(half)))
            high = ir.Constant(ir.VectorType(number, half), list(range(half, 2 * half)))
            total = builder.fadd(builder.shuffle_vector(total, total, low), builder.shuffle_vector(total, total, high))
            half //= 2
        return builder.extract_element(total, ir.Constant(number, 0))

    return types.float32(types.int64, types.int64, types.int64), generate


def _prefetch(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(call, [builder.inttoptr(args[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _high_product(context: Any, x: Any, y: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(arg, wide) for arg in args))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


dot: Any = intrinsic(_dot)
"""For kernels: dot(address of weights, address of x, cache lines), of float32 numbers."""

prefetch: Any = intrinsic(_prefetch)
"""For kernels: fetch the cache line at an address that will soon be read."""

high_product: Any = intrinsic(_high_product)
"""For kernels: the upper 64 bits of the product of two unsigned 64-bit numbers."""
