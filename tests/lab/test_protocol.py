"""The paper's protocol against a straightforward one of numpy, scipy and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from lab.experiments import table1
from lab.experiments.data_files import load
from lab.experiments.datasets import Dataset
from lab.experiments.passes import Pass, run_pass
from lab.experiments.protocol import (
    LEFT_OUT,
    OF_THE_PAPER,
    Algorithm,
    Protocol,
    choose_gammas,
    protocol_of,
    run_cells,
    spread,
)
from lab.experiments.results import ResultsDirectory
from lab.experiments.running import Runner
from tests.support.plain_numpy import Figures, dense, one_pass
from tests.support.shared_data import data_directory, shared_file
from tests.support.small_data import dataset

# Roundings add up over the rounds, and a weight may come to lie on the other side of 0.
AUC_ROUNDING, DENSITY_ROUNDING = 1e-9, 1e-12


def order(data: Dataset, shuffle: int | None) -> np.ndarray:
    """What passes says of its random numbers."""
    if shuffle is None:
        return np.arange(data.rows)
    return np.random.default_rng([1, 0, shuffle]).permutation(data.rows)


def plain(data: Dataset, protocol: Protocol, a: Algorithm, gamma: float, shuffle: int | None) -> Figures:
    theta, labels = dense(data, order(data, shuffle))
    return one_pass(theta, labels, a.family, a.update == "implicit", gamma, protocol.floor, 0.05)


def runner(directory: Path, jobs: int = 1) -> Runner:
    return Runner(ResultsDirectory(directory), jobs)


@pytest.mark.parametrize("algorithm", OF_THE_PAPER + LEFT_OUT, ids=lambda a: a.name)
@pytest.mark.parametrize("floor", [0.0, 5.0])
def test_a_pass_is_that_of_the_papers_table(algorithm: Algorithm, floor: float) -> None:
    data, protocol = dataset(120), Protocol((0.7,), floor, 1)
    one = Pass(protocol.hyper(data, algorithm, 0.7, 0.05), 1)
    got, want = run_pass(data, one), plain(data, protocol, algorithm, 0.7, 1)
    assert got.auc == pytest.approx(want.auc, abs=AUC_ROUNDING)
    assert got.density == pytest.approx(want.density, abs=DENSITY_ROUNDING)


def test_gamma_is_chosen_on_one_shuffle_and_evaluated_on_the_others(tmp_path: Path) -> None:
    data, protocol = dataset(120), Protocol((0.3, 0.8, 1.9), 0.0, 3)
    worker = runner(tmp_path)
    gammas = choose_gammas(worker, data, protocol, OF_THE_PAPER)
    cells = run_cells(worker, data, protocol, gammas)
    for cell, a in zip(cells, OF_THE_PAPER, strict=True):
        gamma = max(protocol.gammas, key=lambda g: plain(data, protocol, a, g, 0).auc)
        others = [plain(data, protocol, a, gamma, shuffle) for shuffle in (1, 2, 3)]
        assert cell.gamma == gamma
        assert cell.auc == pytest.approx(mean(f.auc for f in others), abs=AUC_ROUNDING)
        assert cell.density == pytest.approx(mean(f.density for f in others), abs=DENSITY_ROUNDING)
        assert (cell.lowest_auc, cell.highest_auc) == pytest.approx(
            (min(f.auc for f in others), max(f.auc for f in others)), abs=AUC_ROUNDING
        )


def test_advertisements_are_learned_once_in_their_order(tmp_path: Path) -> None:
    data, protocol = dataset(120, "criteo", valued=False), protocol_of("criteo")
    assert (len(protocol.gammas), protocol.gammas[0], protocol.gammas[-1]) == (9, 0.03, 0.2)
    assert protocol.floor == 20.0
    cells = table1.run(runner(tmp_path), data)
    ftrl, a = cells[0], OF_THE_PAPER[0]
    found = {g: plain(data, protocol, a, g, None) for g in protocol.gammas}
    assert ftrl.auc == pytest.approx(max(f.auc for f in found.values()), abs=AUC_ROUNDING)
    assert ftrl.density == pytest.approx(found[ftrl.gamma].density, abs=DENSITY_ROUNDING)


def test_the_other_sets_take_twelve_gammas_and_five_shuffles() -> None:
    protocol = protocol_of("news20")
    assert (len(protocol.gammas), protocol.gammas[0], protocol.gammas[-1]) == (12, 0.3, 1.9)
    assert (protocol.shuffles, protocol.floor) == (5, 0.0)
    assert spread(0.0, 1.0, 5) == (0.0, 0.25, 0.5, 0.75, 1.0)


def test_features_have_their_own_slots_ordered_by_frequency() -> None:
    data = dataset(200)
    hashes, counts = np.unique(data.batch.hashes, return_counts=True)
    assert hashes.tolist() == list(range(data.features))
    assert (np.diff(counts) <= 0).all()
    assert data.features <= 2**data.bits


def test_every_pass_draws_the_same_weights() -> None:
    data = dataset(200)
    hyper = Protocol((0.7,), 0.0, 1).hyper(data, OF_THE_PAPER[0], 0.7, 0.0)
    plain_pass, weighted = Pass(hyper, None), Pass(hyper, None, largest_weight=100.0)
    assert run_pass(data, plain_pass).weighted_log_loss == run_pass(data, plain_pass).log_loss
    outcome = run_pass(data, weighted)
    assert outcome.weighted_log_loss != outcome.log_loss
    assert run_pass(data, weighted).weighted_log_loss == outcome.weighted_log_loss


def test_a_set_with_one_label_is_refused() -> None:
    data = dataset(50)
    data.batch.labels[:] = 1
    with pytest.raises(ValueError, match="books has labels of one kind only"):
        run_pass(data, Pass(Protocol((0.7,), 0.0, 1).hyper(data, OF_THE_PAPER[0], 0.7, 0.0), None))


@pytest.mark.slow
def test_the_kitchen_reviews_give_the_papers_figures(tmp_path: Path) -> None:
    shared_file("sentiment_processed_acl.tar.xz")
    data = load("kitchen", data_directory())
    assert (data.rows, data.features) == (2000, 93474)
    worker, protocol = runner(tmp_path, jobs=2), protocol_of("kitchen")
    cells = run_cells(worker, data, protocol, choose_gammas(worker, data, protocol, OF_THE_PAPER))
    assert [table1.Compared.of(cell).agrees for cell in cells] == [True, True, True]
    ours, theirs = table1.density_ratios(cells)["kitchen"]
    assert min(ours, theirs) >= 2.5
