"""Small made-up data sets, in memory and as the files that `ftrl reproduce` reads."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lab.experiments.datasets import Dataset, dataset_of

DOMAINS = ("books", "dvd", "electronics", "kitchen")


class Example(NamedTuple):
    features: list[int]
    label: int


def examples(rows: int, seed: int = 0, vocabulary: int = 400) -> Iterator[Example]:
    """Features 1 .. vocabulary with a few informative ones, and many that occur once or twice."""
    random = np.random.default_rng(seed)
    opinion = random.normal(size=vocabulary + 1)
    for _ in range(rows):
        chosen = np.unique((vocabulary * random.uniform(size=12) ** 3).astype(int) + 1)
        yield Example(chosen.tolist(), int(random.normal() < opinion[chosen].sum()))


def dataset(rows: int = 200, name: str = "books", seed: int = 0, valued: bool = True) -> Dataset:
    found = list(examples(rows, seed))
    row_ptr = np.cumsum([0, *(len(e.features) for e in found)])
    features = np.concatenate([np.array(e.features) for e in found])
    values = np.random.default_rng(seed + 1).uniform(0.1, 1.0, features.size) if valued else np.empty(0)
    return dataset_of(name, row_ptr, features, values, np.array([e.label for e in found], np.uint8))


def write_sentiment(directory: Path, rows: int = 200) -> Path:
    """All four domains, with as many reviews of each kind as there are."""
    path = directory / "sentiment_processed_acl.tar.xz"
    with tarfile.open(path, "w:xz", preset=0) as archive:
        for seed, domain in enumerate(DOMAINS):
            for label, kind in enumerate(("negative", "positive")):
                lines = [_review(e, kind) for e in examples(rows, seed) if e.label == label]
                content = "".join(lines).encode()
                member = tarfile.TarInfo(f"processed_acl/{domain}/{kind}.review")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def write_all(directory: Path, rows: int = 200) -> Path:
    """Every file of the experiments; the directory."""
    write_sentiment(directory, rows)
    found = list(examples(rows))
    _write(directory / "news20_like.tsv.xz", (_post(e) for e in found))
    _write(directory / "rcv1_vw_union.svm.xz", (_svm(e) for e in found))
    _write(directory / "criteo_kaggle_first80000_hash20.tsv.xz", (_impression(e) for e in found))
    _write(directory / "criteo_1tb_day0_first10000.tsv.xz", (_impression(e) for e in found))
    _write(directory / "avazu_first9999.csv.xz", _csv(found))
    return directory


def _review(example: Example, kind: str) -> str:
    words = " ".join(f"w{feature}:a:{feature % 3 + 1}" for feature in example.features)
    return f"{words} #label#:{kind}\n"


def _post(example: Example) -> str:
    deltas = np.diff([0, *example.features])
    return f"{2 * example.label - 1:+d}\tgroup/1\t1993-01-01T00:00:00Z\t{' '.join(map(str, deltas))}\n"


def _svm(example: Example) -> str:
    return f"{2 * example.label - 1:+d} " + " ".join(f"{feature}:0.3" for feature in example.features) + "\n"


def _impression(example: Example) -> str:
    columns = [str(feature) for feature in example.features][:39]
    return "\t".join([str(example.label), *columns, *[""] * (39 - len(columns))]) + "\n"


def _csv(found: list[Example]) -> Iterator[str]:
    yield "id,click,hour,C1,C2\n"
    for number, example in enumerate(found):
        first, second = (example.features * 2)[:2]
        yield f"{number},{example.label},14102100,{first},{second}\n"


def _write(path: Path, lines: Iterator[str]) -> None:
    with lzma.open(path, "wt", preset=0) as file:
        file.writelines(lines)
