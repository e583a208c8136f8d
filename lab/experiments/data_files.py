"""The files of the experiments, as docs/experiments.md describes them."""

from __future__ import annotations

import csv
import lzma
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lab.experiments.datasets import Dataset, dataset_of, unit_length
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from service.parsing.files.reader import read_examples
from service.parsing.files.rows import ReadOptions

SENTIMENT = ("books", "dvd", "electronics", "kitchen")
_SENTIMENT_FILE = "sentiment_processed_acl.tar.xz"
_CRITEO_COLUMNS = (*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27)))


class _Kind(NamedTuple):
    file: str
    load: Callable[[Path, str], Dataset]


def names() -> tuple[str, ...]:
    """The data sets of the paper's table, in its order."""
    return (*SENTIMENT, "news20", "rcv1", "criteo")


def file_of(name: str) -> str:
    """The name of the file that holds a data set."""
    return _KINDS[name].file


def present(name: str, directory: Path) -> bool:
    return (directory / file_of(name)).is_file()


def load(name: str, directory: Path) -> Dataset:
    """Raises OSError or UnreadableFile, or ValueError if the content is not as documented."""
    kind = _KINDS[name]
    return kind.load(directory / kind.file, name)


def _sentiment(path: Path, domain: str) -> Dataset:
    """Rows of `token:count`, scaled to unit length. A token is a feature."""
    numbers: dict[str, int] = {}
    features: list[list[int]] = []
    counts: list[float] = []
    labels: list[int] = []
    for label, line in _reviews(path, domain):
        pairs = [word.rsplit(":", 1) for word in line.split()[:-1]]  # the last is the label
        features.append([numbers.setdefault(token, len(numbers)) for token, _ in pairs])
        counts.extend(float(count) for _, count in pairs)
        labels.append(label)
    row_ptr, joined = _joined(features)
    return dataset_of(
        domain, row_ptr, joined, unit_length(row_ptr, np.array(counts)), np.array(labels, np.uint8)
    )


def _reviews(path: Path, domain: str) -> Iterator[tuple[int, str]]:
    with tarfile.open(path, "r:*") as archive:
        for label, name in ((1, "positive"), (0, "negative")):
            member = archive.extractfile(f"processed_acl/{domain}/{name}.review")
            if member is None:
                raise ValueError(f"{path}: {domain}/{name}.review is no file")
            for line in member.read().decode().splitlines():
                yield label, line


def _news20(path: Path, name: str) -> Dataset:
    """Rows of `label, group, date, delta-coded ids`; every value is 1 / sqrt(number of ids)."""
    with lzma.open(path, "rt") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    features = [np.cumsum(np.array(deltas.split(), np.int64)) for *_, deltas in rows]
    lengths = np.array([len(row) for row in features])
    row_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    labels = np.array([int(row[0]) > 0 for row in rows], np.uint8)
    values = np.repeat(np.maximum(lengths, 1) ** -0.5, lengths)
    return dataset_of(name, row_ptr, np.concatenate(features), values, labels, [row[2] for row in rows])


def _rcv1(path: Path, name: str) -> Dataset:
    """libsvm text; the rows have unit length already."""
    plain = HashContract(numeric="raw", bias=False)
    options = ReadOptions(limits=Limits(features_per_example=10_000))
    chunks = list(read_examples(path, "libsvm", plain, options))
    if wrong := [error for chunk in chunks for error in chunk.errors]:
        raise ValueError(f"{path}: line {wrong[0].line_number}: {wrong[0].reason}")
    batch = ExampleBatch.concatenate([chunk.batch for chunk in chunks])
    return dataset_of(name, batch.row_ptr, batch.hashes, batch.values, batch.labels)


def _criteo(path: Path, name: str) -> Dataset:
    """Tab-separated: label, 13 integers, 26 categories; each integer as the category of its bit length."""
    with lzma.open(path, "rt") as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)
        return _of_columns(
            name,
            (
                ({c: _integer(c, v) for c, v in zip(_CRITEO_COLUMNS, columns, strict=True) if v}, label)
                for label, *columns in rows
            ),
        )


def _avazu(path: Path, name: str) -> Dataset:
    """CSV with a header; every column but `id` and the label is a category."""
    with lzma.open(path, "rt", newline="") as lines:
        return _of_columns(
            name,
            (
                ({c: v for c, v in row.items() if c not in ("id", "click") and v}, row["click"])
                for row in csv.DictReader(lines)
            ),
        )


def _of_columns(name: str, rows: Iterable[tuple[Mapping[str, int | str], str]]) -> Dataset:
    """Rows of columns and a label, each value of a column a feature, numbers by their bit length."""
    encoder = FeatureEncoder(HashContract(bias=False), Limits(value_magnitude=1e12))
    features: list[list[int]] = []
    labels: list[int] = []
    for columns, label in rows:
        features.append(encoder.encode(columns, ())[0])
        labels.append(int(label))
    row_ptr, joined = _joined(features)
    return dataset_of(name, row_ptr, joined, np.empty(0), np.array(labels, np.uint8))


def _integer(column: str, text: str) -> int | str:
    # A few values of the integer columns are hashes and stay text.
    return int(text) if column[0] == "I" and text.lstrip("-").isdigit() else text


def _joined(
    rows: Sequence[list[int]],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    row_ptr = np.fromiter(accumulate(map(len, rows), initial=0), np.int64, len(rows) + 1)
    joined = np.fromiter((feature for row in rows for feature in row), np.int64, int(row_ptr[-1]))
    return row_ptr, joined


_KINDS = {
    **{domain: _Kind(_SENTIMENT_FILE, _sentiment) for domain in SENTIMENT},
    "news20": _Kind("news20_like.tsv.xz", _news20),
    "rcv1": _Kind("rcv1_vw_union.svm.xz", _rcv1),
    "criteo": _Kind("criteo_kaggle_first80000_hash20.tsv.xz", _criteo),
    "criteo-1tb": _Kind("criteo_1tb_day0_first10000.tsv.xz", _criteo),
    "avazu": _Kind("avazu_first9999.csv.xz", _avazu),
}
