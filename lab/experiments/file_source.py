"""Files of examples as the source of a race."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from lab.experiments.progress import RaceProgress
from lab.experiments.race import Feed, Search
from model_core.hashing.contract import HashContract
from service.errors import CommandFailure
from service.models.config.model import ModelConfig
from service.parsing.files.reader import CHUNK_BYTES, CHUNK_ROWS, Chunk, read_examples
from service.parsing.files.rows import Format, ReadOptions
from service.parsing.files.source import STANDARD_INPUT, InputFiles

_HALVING_ROWS, _HALVING_BYTES, _HALVING_CHUNKS = 512, 4096, 27


@dataclass(frozen=True)
class FileSource:
    """Files that are read in order as one log."""

    files: tuple[str, ...]
    file_format: Format
    options: ReadOptions
    on_error: Literal["skip", "fail"] = "fail"

    @property
    def name(self) -> str:
        return ", ".join(self.files)

    def check(self, config: ModelConfig) -> None:
        """Files are hashed under any contract."""

    @contextmanager
    def open(
        self, contracts: Sequence[HashContract], search: Search | None, progress: RaceProgress
    ) -> Iterator[Feed]:
        """One parse for each contract. Raises CommandFailure, UnreadableFile."""
        if self.files == (STANDARD_INPUT,) and len(contracts) > 1:
            raise CommandFailure(
                "standard input can be read once only, so give one way of hashing, or a file"
            )
        with ExitStack() as stack:
            sources = [stack.enter_context(InputFiles(*self.files)) for _ in contracts]
            size = sources[0].size
            if search == "halving" and size is None:
                raise CommandFailure("halving has to know how long the file is: use --search grid, or a file")
            pieces = (CHUNK_ROWS, CHUNK_BYTES)
            if search != "grid" and size is not None:
                pieces = _HALVING_ROWS, min(CHUNK_BYTES, max(_HALVING_BYTES, size // _HALVING_CHUNKS))
            readers = [
                stack.enter_context(
                    closing(read_examples(source, self.file_format, contract, self.options, *pieces))
                )
                for source, contract in zip(sources, contracts, strict=True)
            ]
            yield Feed(self._checked(zip(*readers, strict=True), progress), size)

    def facts(self) -> dict[str, Any]:
        return {"files": list(self.files)}

    def remarks(self) -> Iterator[str]:
        return iter(())

    def _checked(
        self, chunks: Iterable[tuple[Chunk, ...]], progress: RaceProgress
    ) -> Iterator[tuple[Chunk, ...]]:
        """The same lines under every hash contract; bad lines are reported, or raise CommandFailure."""
        for several in chunks:
            for error in (error for chunk in several for error in chunk.errors):
                text = f"{error.file or self.files[0]}:{error.line_number}: {error.reason}"
                if self.on_error == "fail":
                    raise CommandFailure(f"{text} (--on-error skip leaves such lines out)")
                progress.bad_line(text)
            yield several
