import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.kernels.murmur import (
    LONGEST_IN_LANES,
    NOT_TO_HASH,
    READ_AHEAD,
    hash_parts,
    murmur3_32,
)


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0x00000000),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"aaaa", 0x9747B28C, 0x5A97808A),
        (b"abc", 0, 0xB3DD93FA),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
        (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ],
)
def test_the_published_vectors_come_out(data: bytes, seed: int, expected: int) -> None:
    buffer = np.frombuffer(data + bytes(READ_AHEAD), np.uint8)
    assert murmur3_32(buffer, 0, len(data), seed) == expected


@given(
    st.binary(max_size=70),
    st.binary(max_size=9),
    st.binary(min_size=3, max_size=9),
    st.integers(0, 2**32 - 1),
)
def test_any_part_of_a_buffer_hashes_as_mmh3_hashes_it(
    data: bytes, before: bytes, after: bytes, seed: int
) -> None:
    buffer = np.frombuffer(before + data + after, np.uint8)
    hashed = murmur3_32(buffer, len(before), len(before) + len(data), seed)
    assert hashed == mmh3.hash(data, seed, signed=False)


@given(
    st.binary(min_size=60, max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(NOT_TO_HASH, 20)), max_size=40),
    st.integers(0, 9),
    st.integers(0, 2**32 - 1),
)
def test_many_parts_hash_as_one_by_one(
    data: bytes, parts: list[tuple[int, int]], first: int, seed: int
) -> None:
    starts, lengths = (np.array([part[i] for part in parts], np.int32) for i in range(2))
    lengths = np.minimum(lengths, len(data) - starts).astype(np.int32)
    hashes = np.arange(len(parts), dtype=np.uint32)
    hash_parts(
        *(np.frombuffer(data + bytes(LONGEST_IN_LANES), np.uint8), starts, lengths, hashes),
        *(first, len(parts), seed),
    )
    for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        kept = number < first or length == NOT_TO_HASH
        expected = number if kept else mmh3.hash(data[start : start + length], seed, signed=False)
        assert hashes[number] == expected
