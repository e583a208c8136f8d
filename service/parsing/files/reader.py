"""Reads files of examples in any format: as batches for the kernels, or as rows for HTTP."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract
from model_core.text.parser import TextParser, libsvm_parser, vw_parser
from model_core.text.problems import LineError, LineProblem, TextOptions, explain
from service.parsing.files.rows import Format, ReadOptions, Row, Source
from service.parsing.files.source import InputFiles, TextSource

if TYPE_CHECKING:
    from model_core.hashing.encoder import Encoded, FeatureEncoder
    from model_core.text.lines import TextRow

__all__ = ["Chunk", "Format", "ReadOptions", "Row", "read_examples", "read_rows"]

CHUNK_BYTES = 2**20
CHUNK_ROWS = 8192
ITEMS_AHEAD = 2
LONGEST_END_SECONDS = 1.0

_PARSERS = {"vw": vw_parser, "libsvm": libsvm_parser}
_OF_COLUMNS = ("parquet", "arrow")

Item = TypeVar("Item")
RowOrError = TypeVar("RowOrError", Row, LineError, Row | LineError)


class _End(NamedTuple):
    """There are no more items; `failure` is raised, if there is one."""

    failure: BaseException | None


class Chunk(NamedTuple):
    """Consecutive good examples, the errors of the lines between them, and the progress in the file.

    bytes_read: of the files as they are stored, for comparison with InputFiles.size.
    duplicates: examples that were left out, because one with the same event id came before, in any file.
    """

    batch: ExampleBatch
    errors: list[LineError]
    bytes_read: int
    duplicates: int = 0


def read_examples(
    source: Source,
    file_format: Format,
    contract: HashContract,
    options: ReadOptions,
    chunk_rows: int = CHUNK_ROWS,
    chunk_bytes: int = CHUNK_BYTES,
    encoder: FeatureEncoder | None = None,
) -> Generator[Chunk, None, None]:
    """Yield the examples of files, encoded; a thread prepares the next chunk while the last one is used.

    vw and libsvm come in chunks of about `chunk_bytes`, the others of at most `chunk_rows` rows.
    encoder: encodes every example, which takes longer; to observe the features. By default a kernel encodes
    where it can.
    Raises UnreadableFile.
    """
    event_ids = EventIds()

    def chunks_of(text: TextSource) -> Iterator[Chunk]:
        if file_format in _PARSERS:
            parser = _PARSERS[file_format](contract, options.text_options(file_format), encoder)
            return _parsed_chunks(text, parser, chunk_bytes)
        if file_format in _OF_COLUMNS and encoder is None:
            return _column_chunks(text, file_format, contract, options, chunk_rows, event_ids)
        encoded = _encoded_rows(text, file_format, contract, options, encoder)
        return _gathered_chunks(text, encoded, chunk_rows, event_ids)

    with _opened(source) as files:
        yield from _prefetched(_chunks_of_all(files, chunks_of))


def read_rows(
    source: Source, file_format: Format, contract: HashContract, options: ReadOptions
) -> Generator[Row | LineError, None, None]:
    """Yield the examples of files as rows that the contract accepts, and each error in its place.

    Raises UnreadableFile.
    """
    with _opened(source) as files:
        for text in files:
            for item in _encoded_rows(text, file_format, contract, options):
                yield _of_file(item if isinstance(item, LineError) else item[0], text, files)


@contextmanager
def _opened(source: Source) -> Iterator[InputFiles]:
    """Yield the files; what was open before stays open."""
    if isinstance(source, InputFiles):
        yield source
    elif isinstance(source, TextSource):
        yield InputFiles(source)
    else:
        with InputFiles(source) as files:
            yield files


def _chunks_of_all(files: InputFiles, chunks_of: Callable[[TextSource], Iterator[Chunk]]) -> Iterator[Chunk]:
    for text in files:
        for chunk in chunks_of(text):
            errors = [_of_file(error, text, files) for error in chunk.errors]
            yield chunk._replace(errors=errors, bytes_read=files.bytes_read)


def _of_file(item: RowOrError, text: TextSource, files: InputFiles) -> RowOrError:
    """Return the same with the name of its file, if there are several."""
    return item if len(files) == 1 else item._replace(file=text.name)


def _parsed_chunks(source: TextSource, parser: TextParser, chunk_bytes: int) -> Iterator[Chunk]:
    rest, line, data = b"", 1, source.read(chunk_bytes)
    while data:
        following = source.read(chunk_bytes)
        parsed = parser.parse(data, line, final=not following, begun=rest)
        consumed = parsed.consumed_bytes - len(rest)
        rest = data[consumed:] if consumed >= 0 else rest + data
        source.check_length(rest)
        line += parsed.lines
        data = following
        yield Chunk(parsed.batch, parsed.errors, source.bytes_read)


def _gathered_chunks(
    source: TextSource,
    rows: Iterator[tuple[Row, Encoded] | LineError],
    chunk_rows: int,
    event_ids: EventIds,
) -> Iterator[Chunk]:
    while items := list(islice(rows, chunk_rows)):
        errors = [item for item in items if isinstance(item, LineError)]
        valid = [item for item in items if not isinstance(item, LineError)]
        good = [item for item in valid if event_ids.is_new(item[0].event_id)]
        labels, weights = [row.label for row, _ in good], [row.weight for row, _ in good]
        times = [row.event_time_ms for row, _ in good]
        batch = ExampleBatch.from_encoded([encoded for _, encoded in good], labels, weights, times)
        yield Chunk(batch, errors, source.bytes_read, len(valid) - len(good))


def _encoded_rows(
    source: TextSource,
    file_format: Format,
    contract: HashContract,
    options: ReadOptions,
    encoder: FeatureEncoder | None = None,
) -> Iterator[tuple[Row, Encoded] | LineError]:
    if encoder is None:
        # Imported here, since a text file goes through a kernel: `ftrl replay` starts sooner without it.
        from model_core.hashing.encoder import FeatureEncoder

        encoder = FeatureEncoder(contract, options.limits)
    if file_format == "jsonl":
        from service.parsing.files.jsonl import json_rows

        yield from json_rows(source, encoder)
        return
    if file_format in _PARSERS:
        from model_core.text.lines import read_libsvm_line, read_vw_line

        read_line = read_vw_line if file_format == "vw" else read_libsvm_line
        rows = _text_rows(source, read_line, contract, options.text_options(file_format))
    elif file_format == "records":
        from service.parsing.files.json_records import record_rows

        rows = record_rows(source, file_format, contract, options)
    elif file_format in _OF_COLUMNS:
        from service.parsing.files.arrow import arrow_rows, open_arrow
        from service.parsing.files.columns import RowBuilder

        file = open_arrow(source, file_format)
        lines = options.text_options(file_format)
        builder = RowBuilder(source.name, file.names, contract, options, lines)
        rows = arrow_rows(source, file, builder, options)
    else:
        from service.parsing.files.tables import table_rows

        rows = table_rows(source, file_format, contract, options)
    yield from _encoded_whole(rows, encoder)


def _encoded_whole(
    rows: Iterator[Row | LineError], encoder: FeatureEncoder
) -> Iterator[tuple[Row, Encoded] | LineError]:
    for row in rows:
        if isinstance(row, LineError):
            yield row
            continue
        try:
            yield row, encoder.encode(row.features, ())
        except InvalidInput as invalid:
            yield LineError(row.line_number, str(invalid))


def _column_chunks(
    source: TextSource,
    file_format: Format,
    contract: HashContract,
    options: ReadOptions,
    chunk_rows: int,
    event_ids: EventIds,
) -> Iterator[Chunk]:
    """Yield the examples of Parquet and Arrow, encoded column by column where that is possible."""
    from model_core.hashing.encoder import FeatureEncoder
    from service.parsing.files.arrow import arrow_rows, open_arrow
    from service.parsing.files.arrow_batches import ColumnEncoder, has_columns_alone
    from service.parsing.files.columns import RowBuilder

    file = open_arrow(source, file_format, chunk_rows)
    builder = RowBuilder(source.name, file.names, contract, options, options.text_options(file_format))
    encoder = FeatureEncoder(contract, options.limits)
    if not has_columns_alone(file, builder, options, encoder):
        rows = _encoded_whole(arrow_rows(source, file, builder, options), encoder)
        yield from _gathered_chunks(source, rows, chunk_rows, event_ids)
        return
    columns, number = ColumnEncoder(source, builder, encoder, options), 1
    for piece in file.batches:
        batch, errors, duplicates = columns.encoded(file, piece, number, event_ids.is_new)
        number += piece.num_rows
        yield Chunk(batch, errors, source.bytes_read, duplicates)


def _text_rows(
    source: TextSource,
    read_line: Callable[[bytes, TextOptions], TextRow | None],
    contract: HashContract,
    options: TextOptions,
) -> Iterator[Row | LineError]:
    from model_core.text.lines import features_of

    for number, line in enumerate(source.lines(), 1):
        try:
            row = read_line(line.removesuffix(b"\n"), options)
            if row is not None:
                yield Row(number, features_of(row.pairs, contract), row.label, row.weight)
        except LineProblem as problem:
            yield LineError(number, explain(problem.code, problem.word, options))
        except InvalidInput as invalid:
            yield LineError(number, str(invalid))


def _prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items, and raise what making them raises, in its place.

    A thread makes up to ITEMS_AHEAD items while the last one is used. It is a daemon, since it may read an
    endless pipe and must not delay the exit.
    """
    wanted: SimpleQueue[None] = SimpleQueue()
    made: SimpleQueue[Item | _End] = SimpleQueue()
    closed = Event()

    def make() -> None:
        while True:
            wanted.get()
            if closed.is_set():
                return None
            try:
                made.put(next(items))
            except StopIteration:
                return made.put(_End(None))
            except BaseException as failure:  # noqa: BLE001  raised where the item is used
                return made.put(_End(failure))

    for _ in range(ITEMS_AHEAD):
        wanted.put(None)
    thread = Thread(target=make, name="reader", daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _End):
            wanted.put(None)
            yield item
        if item.failure is not None:
            raise item.failure
    finally:
        closed.set()
        wanted.put(None)
        thread.join(LONGEST_END_SECONDS)


MAX_EVENT_IDS = 1_000_000
"""The last ids that are remembered; each takes about 140 bytes, so that all take about 140 MB."""


class EventIds:
    """The last `max_ids` different ids, each as 16 bytes of its BLAKE2b hash."""

    def __init__(self, max_ids: int = MAX_EVENT_IDS) -> None:
        self._max_ids = max_ids
        self._known: set[bytes] = set()
        self._in_order: deque[bytes] = deque()

    def is_new(self, event_id: str | None) -> bool:
        """Remember an id, and return whether it was unknown; an example without one is always new."""
        if event_id is None:
            return True
        digest = blake2b(event_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._known:
            return False
        if len(self._known) == self._max_ids:
            self._known.discard(self._in_order.popleft())
        self._known.add(digest)
        self._in_order.append(digest)
        return True
