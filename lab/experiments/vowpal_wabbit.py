"""One pass of Vowpal Wabbit over a log, with its defaults and with a small grid of options."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path

from lab.experiments.datasets import Dataset

PACKAGE = "vowpalwabbit"
DEFAULT = ""
GRID = (
    DEFAULT,
    *(f"-l {rate}" for rate in (0.05, 0.2, 1, 3)),
    *(
        f"--ftrl --ftrl_alpha {alpha} --ftrl_beta {beta}"
        for alpha in (0.05, 0.1, 0.5, 2)
        for beta in (0.1, 1)
    ),
    "--coin",
)
_SMALLEST_BITS = 18  # Vowpal Wabbit's default


def installed_version() -> str | None:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def log_losses_of(data: Dataset, options: tuple[str, ...]) -> Mapping[str, float]:
    """Progressive log loss of one pass, by options; each feature has a slot of its own."""
    from vowpalwabbit import Workspace

    bits = max(_SMALLEST_BITS, data.bits + 1)
    losses = {}
    with tempfile.TemporaryDirectory(prefix="ftrl-vw-") as directory:
        text = Path(directory) / "rows.vw"
        with text.open("w") as file:
            file.writelines(_lines(data))
        for one in options:
            read = f"-d {text} --cache_file {directory}/rows.cache"
            workspace = Workspace(f"{read} --loss_function logistic -b {bits} --quiet {one}")
            losses[one] = workspace.get_sum_loss() / workspace.get_weighted_examples()
            workspace.finish()
    return losses


def _lines(data: Dataset) -> Iterator[str]:
    batch = data.batch
    values = batch.values.tolist()
    features = batch.hashes.tolist()
    for label, (first, last) in zip(batch.labels.tolist(), pairwise(batch.row_ptr.tolist()), strict=True):
        words = map(str, features[first:last])
        if values:
            words = map("{}:{}".format, words, values[first:last])
        yield f"{1 if label else -1} | {' '.join(words)}\n"
