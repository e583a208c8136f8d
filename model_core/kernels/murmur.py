"""MurmurHash3 x86 32, compiled: of a part of a byte buffer, of many parts, or of a text in several places.

(Austin Appleby, public domain)
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic
from numpy import uint32, uint64
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, kernel

cgutils: Any = untyped_cgutils

# A part's last block is loaded whole and masked: this many bytes must follow every part in its buffer.
READ_AHEAD = 3
LANES = 8
LONGEST_IN_LANES = 16
NOT_TO_HASH = -1

_THREE, _FOUR, _EIGHT, _BLOCK_BITS = uint64(3), uint64(4), uint64(8), uint64(32)
_EQUALS = uint64(ord("="))


class Partial(NamedTuple):
    """The hash of what was read so far; `pending` holds the `pending_bits` that do not fill a block yet."""

    mixed: np.uint32
    pending: np.uint64
    pending_bits: np.uint64
    length: np.uint64


@kernel
def murmur3_32(buffer: NDArray[np.uint8], start: int, stop: int, seed: int) -> np.uint32:
    """The unsigned hash of buffer[start:stop], that of mmh3.hash(..., seed, signed=False).

    buffer: uint8, with READ_AHEAD more bytes after `stop`.
    """
    return finished(extended(begun(seed), buffer, start, stop))


@kernel
def hash_parts(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    lengths: NDArray[np.int32],
    hashes: NDArray[np.uint32],
    first: int,
    stop: int,
    seed: int,
) -> None:
    """Set hashes[j], for first <= j < stop, to murmur3_32 of lengths[j] bytes of buffer from starts[j] on.

    Where lengths[j] is NOT_TO_HASH, the hash stays.  LONGEST_IN_LANES bytes must follow every start.
    """
    while first + LANES <= stop:
        longest = uint32(0)
        for j in range(first, first + LANES):
            longest = max(longest, uint32(lengths[j]))  # that of NOT_TO_HASH is huge
        if longest <= uint32(LONGEST_IN_LANES):
            _hash_in_lanes(buffer, starts, lengths, hashes, first, uint32(seed))
        else:
            _hash_one_by_one(buffer, starts, lengths, hashes, first, first + LANES, seed)
        first += LANES
    _hash_one_by_one(buffer, starts, lengths, hashes, first, stop, seed)


@kernel
def _hash_one_by_one(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int32],
    lengths: NDArray[np.int32],
    hashes: NDArray[np.uint32],
    first: int,
    stop: int,
    seed: int,
) -> None:
    for j in range(first, stop):
        if lengths[j] != NOT_TO_HASH:
            hashes[j] = murmur3_32(buffer, int(starts[j]), int(starts[j]) + int(lengths[j]), seed)


_FIRST_FACTOR, _SECOND_FACTOR, _ADDEND = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_LAST_FACTORS = 0x85EBCA6B, 0xC2B2AE35


class _Lanes:
    """Writes the code of operations on LANES uint32 at a time."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    @staticmethod
    def vector(width: int = LANES) -> Any:
        return ir.VectorType(ir.IntType(32), width)

    def constant(self, value: int) -> Any:
        return ir.Constant(self.vector(), [value] * LANES)

    def chosen(self, a: Any, b: Any, places: range) -> Any:
        """The numbers at these places of a and b together."""
        return self._builder.shuffle_vector(a, b, ir.Constant(self.vector(len(places)), list(places)))

    def rotated(self, x: Any, by: int) -> Any:
        left = self._builder.shl(x, self.constant(by))
        return self._builder.or_(left, self._builder.lshr(x, self.constant(32 - by)))

    def scrambled(self, word: Any) -> Any:
        word = self.rotated(self._builder.mul(word, self.constant(_FIRST_FACTOR)), 15)
        return self._builder.mul(word, self.constant(_SECOND_FACTOR))

    def mixed_in(self, h: Any, block: Any) -> Any:
        h = self.rotated(self._builder.xor(h, self.scrambled(block)), 13)
        return self._builder.add(self._builder.mul(h, self.constant(5)), self.constant(_ADDEND))

    def shifted_in(self, h: Any, by: int) -> Any:
        return self._builder.xor(h, self._builder.lshr(h, self.constant(by)))

    def hashes(self, blocks: list[Any], lengths: Any, seeds: Any) -> Any:
        """The hashes of parts whose bytes are these blocks, of which only `lengths` bytes count."""
        builder, h, tail = self._builder, seeds, blocks[0]
        for number, block in enumerate(blocks, 1):
            is_whole = builder.icmp_unsigned(">=", lengths, self.constant(4 * number))
            h = builder.select(is_whole, self.mixed_in(h, block), h)
            if number < len(blocks):
                tail = builder.select(is_whole, blocks[number], tail)
        bits = builder.shl(builder.and_(lengths, self.constant(3)), self.constant(3))
        mask = builder.sub(builder.shl(self.constant(1), bits), self.constant(1))
        h = builder.xor(builder.xor(h, self.scrambled(builder.and_(tail, mask))), lengths)
        for by, factor in zip((16, 13), _LAST_FACTORS, strict=True):
            h = builder.mul(self.shifted_in(h, by), self.constant(factor))
        return self.shifted_in(h, 16)


@intrinsic
def _hash_lanes(
    _typing_context: Any,
    buffer: Any,
    starts: Any,
    lengths: Any,
    hashes: Any,
    first: Any,  # noqa: ARG001
    seed: Any,  # noqa: ARG001
) -> Any:
    number, blocks_a_part = ir.IntType(32), LONGEST_IN_LANES // 4

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _Lanes(builder)

        def pointer(argument: int, place: Any, width: int) -> Any:
            array = context.make_array(signature.args[argument])(context, builder, arguments[argument])
            item = cgutils.get_item_pointer(context, builder, signature.args[argument], array, [place])
            return builder.bitcast(item, lanes.vector(width).as_pointer())

        at = [builder.load(pointer(i, arguments[4], LANES), align=4) for i in (1, 2)]
        parts = []
        for lane in range(LANES):
            start = builder.sext(builder.extract_element(at[0], number(lane)), ir.IntType(64))
            parts.append(builder.load(pointer(0, start, blocks_a_part), align=1))
        while len(parts) > 1:
            width = 2 * LANES * blocks_a_part // len(parts)
            parts = [lanes.chosen(a, b, range(width)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        every = range(LANES * blocks_a_part)
        blocks = [lanes.chosen(parts[0], parts[0], every[i::blocks_a_part]) for i in range(blocks_a_part)]
        undefined = ir.Constant(lanes.vector(), ir.Undefined)
        seeds = builder.insert_element(undefined, arguments[5], number(0))
        seeds = builder.shuffle_vector(seeds, undefined, lanes.constant(0))
        found = lanes.hashes(blocks, at[1], seeds)
        builder.store(found, pointer(3, arguments[4], LANES), align=4)
        return context.get_dummy_value()

    return types.void(buffer, starts, lengths, hashes, types.intp, types.uint32), codegen


_hash_in_lanes: Any = _hash_lanes


@inlined_kernel
def begun(seed: int) -> Partial:
    """Begin the hash of a text, with no bytes yet."""
    return Partial(uint32(seed), uint64(0), uint64(0), uint64(0))


@inlined_kernel
def extended(partial: Partial, buffer: NDArray[np.uint8], start: int, stop: int) -> Partial:
    """Append buffer[start:stop]; READ_AHEAD more bytes must follow `stop` in the buffer."""
    mixed, pending, bits, length = partial
    i, more = uint64(start), uint64(stop - start)
    tail = i + (more & ~_THREE)
    while i < tail:
        pending |= uint64(block(buffer, i)) << bits
        mixed = _mixed_in(mixed, uint32(pending))
        pending >>= _BLOCK_BITS
        i += _FOUR
    rest = (more & _THREE) * _EIGHT
    # A shift by all 32 bits of a block is fine in 64.
    pending |= (uint64(block(buffer, i)) & ((uint64(1) << rest) - uint64(1))) << bits
    return _without_full_block(mixed, pending, bits + rest, length + more)


@inlined_kernel
def extended_by_equals(partial: Partial) -> Partial:
    """Append `=`."""
    mixed, pending, bits, length = partial
    return _without_full_block(mixed, pending | (_EQUALS << bits), bits + _EIGHT, length + uint64(1))


@inlined_kernel
def finished(partial: Partial) -> np.uint32:
    """The unsigned hash, that of mmh3.hash(..., seed, signed=False) of all the bytes."""
    h = partial.mixed
    if partial.pending_bits:
        h = uint32(h ^ _scrambled(uint32(partial.pending)))
    h = uint32(h ^ uint32(partial.length))
    h = uint32((h ^ (h >> uint32(16))) * uint32(_LAST_FACTORS[0]))
    h = uint32((h ^ (h >> uint32(13))) * uint32(_LAST_FACTORS[1]))
    return uint32(h ^ (h >> uint32(16)))


@inlined_kernel
def block(buffer: NDArray[np.uint8], i: np.uint64) -> np.uint32:
    """Four bytes, little-endian; unsigned indices spare numba's check for negative ones."""
    low = uint32(buffer[i]) | (uint32(buffer[i + uint64(1)]) << uint32(8))
    high = (uint32(buffer[i + uint64(2)]) << uint32(16)) | (uint32(buffer[i + _THREE]) << uint32(24))
    return uint32(low | high)


@inlined_kernel
def _without_full_block(mixed: np.uint32, pending: np.uint64, bits: np.uint64, length: np.uint64) -> Partial:
    if bits >= _BLOCK_BITS:
        mixed = _mixed_in(mixed, uint32(pending))
        pending >>= _BLOCK_BITS
        bits -= _BLOCK_BITS
    return Partial(mixed, pending, bits, length)


@inlined_kernel
def _mixed_in(mixed: np.uint32, whole_block: np.uint32) -> np.uint32:
    h = uint32(mixed ^ _scrambled(whole_block))
    return uint32(_rotated(h, 13) * uint32(5) + uint32(_ADDEND))


@inlined_kernel
def _scrambled(word: np.uint32) -> np.uint32:
    return uint32(_rotated(uint32(word * uint32(_FIRST_FACTOR)), 15) * uint32(_SECOND_FACTOR))


@inlined_kernel
def _rotated(x: np.uint32, by: int) -> np.uint32:
    return uint32((x << uint32(by)) | (x >> uint32(32 - by)))
