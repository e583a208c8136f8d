"""Snapshots as files, and checks that a snapshot fits a model.

A file holds the bytes of `model_core.snapshot`, compressed with zstd, which stores incompressible data as is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import BinaryIO, cast

import zstandard

from model_core.errors import FormatError, InvalidInput
from model_core.learning.hyperparameters import Hyperparameters
from model_core.snapshot import Read, Snapshot, SnapshotHeader, decode, decode_header
from service.errors import SnapshotMismatch
from service.models.config.model import ModelConfig
from service.models.replica import Replica
from service.storage.records import revision

SUFFIX = ".safetensors.zst"
LEVEL = 3
_MAGIC = b"\x28\xb5\x2f\xfd"


def write_snapshot(snapshot: Snapshot, file: BinaryIO) -> None:
    """Write a snapshot as a stream. Raises OSError."""
    with zstandard.ZstdCompressor(LEVEL).stream_writer(file, closefd=False) as out:
        for piece in snapshot.encode():
            out.write(piece)


def read_snapshot(file: BinaryIO) -> Snapshot:
    """Read a file with or without zstd, and verify its checksum. Raises FormatError, OSError."""
    try:
        return decode(_reader(file))
    except zstandard.ZstdError as wrong:
        raise FormatError(f"it is torn or altered ({wrong})") from wrong


def read_header(file: BinaryIO) -> SnapshotHeader:
    """Read the header only, without verifying the checksum. Raises FormatError, OSError."""
    try:
        return decode_header(_reader(file))
    except zstandard.ZstdError as wrong:
        raise FormatError(f"it is torn or altered ({wrong})") from wrong


def revision_of(header: SnapshotHeader) -> str:
    return revision(header.incarnation, header.generation, header.commit, header.mark)


def config_of(header: SnapshotHeader) -> ModelConfig:
    """Return the configuration in a snapshot. Raises SnapshotMismatch if this version does not support it."""
    try:
        config = ModelConfig.from_json(header.config)
    except InvalidInput as wrong:
        raise SnapshotMismatch(
            f"The snapshot has a configuration that this version does not know: {wrong}"
        ) from wrong
    if config.hashing.fingerprint != header.fingerprint:
        raise SnapshotMismatch(
            f"The snapshot was hashed under the contract {header.fingerprint}, this version would hash under"
            f" {config.hashing.fingerprint}: its weights would mean other features."
        )
    return config


def restored_config(header: SnapshotHeader, model: ModelConfig, hyper: Hyperparameters | None) -> ModelConfig:
    """Return the model's configuration with the snapshot's or other hyperparameters.

    Raises SnapshotMismatch.
    """
    config = config_of(header)
    if config.hashing.fingerprint != model.hashing.fingerprint:
        raise SnapshotMismatch(
            f"The snapshot was hashed under the contract {config.hashing.fingerprint}, the model hashes under"
            f" {model.hashing.fingerprint}: its weights would mean other features."
        )
    if config.hashing.prior_probability != model.hashing.prior_probability:
        raise SnapshotMismatch(
            f"The snapshot learned with prior_probability {config.hashing.prior_probability}, the model has"
            f" {model.hashing.prior_probability}: its weights would mean other probabilities."
        )
    check_family(config, model.hyper)
    if hyper is not None:
        check_family(config, hyper)
    return replace(model, hyper=hyper or config.hyper)


def is_of_state(header: SnapshotHeader, replica: Replica) -> bool:
    """Return whether the snapshot was taken of the replica's state or of an earlier one, with no restore
    since.
    """
    return (header.incarnation, header.generation) == (replica.keys.incarnation, replica.generation)


def check_family(config: ModelConfig, hyper: Hyperparameters, what: str = "The snapshot") -> None:
    """Raise SnapshotMismatch if the families differ."""
    if config.hyper.family != hyper.family:
        raise SnapshotMismatch(
            f"{what} is of the family {config.hyper.family!r}, which keeps other numbers than"
            f" {hyper.family!r} does."
        )


def _reader(file: BinaryIO) -> Read:
    start = file.read(len(_MAGIC))
    file.seek(0)
    source = file
    if start == _MAGIC:
        source = cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(file, closefd=False))

    def read(size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := source.read(size)):
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    return read
