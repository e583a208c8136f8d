import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.errors import InvalidInput
from model_core.learning.hyperparameters import AdaptiveRate, GammaRate, Hyperparameters, ScalarRate, refusal
from model_core.learning.schedules import Custom, Once, OverT

positive = st.floats(1e-9, 1e6)
at_least_zero = st.floats(0, 1e6)

documents = st.fixed_dictionaries(
    {
        "family": st.sampled_from(["ftrl", "rda", "comid", "aogd"]),
        "update": st.sampled_from(["first_order", "implicit"]),
        "rate": st.one_of(
            st.fixed_dictionaries({"kind": st.just("adaptive"), "alpha": positive, "beta": at_least_zero}),
            st.fixed_dictionaries({"kind": st.just("gamma"), "gamma": positive, "floor": at_least_zero}),
            st.fixed_dictionaries(
                {"kind": st.just("scalar"), "G": positive, "D": positive, "factor": positive}
            ),
        ),
        "schedule": st.one_of(
            st.sampled_from([{"kind": "constant"}, {"kind": "once"}, {"kind": "inv_sqrt"}]),
            st.fixed_dictionaries({"kind": st.just("over_T"), "T": st.integers(1, 10**15)}),
            st.fixed_dictionaries({"kind": st.just("xiao"), "rho": at_least_zero}),
            st.fixed_dictionaries(
                {
                    "kind": st.just("custom"),
                    "values": st.lists(at_least_zero, min_size=1).map(lambda v: sorted(v, reverse=True)),
                }
            ),
        ),
        "l1": at_least_zero,
        "l2": at_least_zero,
        "psi_l2": at_least_zero,
        "box": st.one_of(st.none(), positive),
    }
)


@given(documents)
def test_every_sound_document_makes_the_round_trip(document):
    hyper = Hyperparameters.from_json(json.loads(json.dumps(document)))
    assert hyper.to_json() == document
    assert Hyperparameters.from_json(hyper.to_json()) == hyper
    assert hash(hyper) == hash(Hyperparameters.from_json(document))


def test_what_is_left_out_takes_its_default():
    assert Hyperparameters.from_json({}) == Hyperparameters()
    assert Hyperparameters() == Hyperparameters(
        "ftrl", "first_order", AdaptiveRate(0.1, 1.0), Once(), l1=0.5, l2=0.0, psi_l2=0.0, box=None
    )
    assert Hyperparameters.from_json({"rate": {"kind": "gamma", "gamma": 1}}).rate == GammaRate(1.0, 0.0)
    assert Hyperparameters.from_json({"l1": 2, "schedule": {"kind": "over_T", "T": 5.0}}).schedule == OverT(5)


@pytest.mark.parametrize(("family", "factor"), [("ftrl", 1.0), ("comid", 1.0), ("rda", 2.0), ("aogd", 2.0)])
def test_the_factor_of_the_scalar_rate_depends_on_the_family(family, factor):
    hyper = Hyperparameters.from_json({"family": family, "rate": {"kind": "scalar", "G": 1, "D": 2}})
    assert hyper.rate == ScalarRate(1.0, 2.0, factor)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be an object with box, drop_below, family"),
        ({"lambda": 1}, "lambda: unknown; allowed: box, drop_below, family, forgetting, l1"),
        ({"family": "adam"}, "family: must be one of ftrl, rda, comid, aogd"),
        ({"family": ["ftrl"]}, "family: must be one of"),
        ({"update": "exact"}, "update: must be one of first_order, implicit"),
        ({"l1": -1}, "l1: must be a number from 0 to 1e.06: l1 times"),
        ({"l1": "0.5"}, "l1: must be a number"),
        ({"l1": True}, "l1: must be a number"),
        ({"l1": None}, "l1: must be a number"),
        ({"l2": float("nan")}, "l2: must be a number"),
        ({"psi_l2": float("inf")}, "psi_l2: must be a number"),
        ({"l1": 10**400}, "l1: must be a number"),
        ({"box": 0}, "box: must be a number from 1e-09"),
        ({"rate": 0.1}, 'rate: must be an object with a "kind" of adaptive, gamma, scalar'),
        ({"rate": {}}, "rate.kind: is missing"),
        ({"rate": {"kind": "adam"}}, "rate.kind: must be one of adaptive, gamma, scalar"),
        ({"rate": {"kind": "adaptive", "gamma": 1}}, "rate.gamma: unknown; allowed: alpha, beta, kind"),
        (
            {"rate": {"kind": "adaptive", "alpha": 0}},
            "rate.alpha: must be a number from 1e-09 to 1e.06: learning",
        ),
        ({"rate": {"kind": "gamma"}}, "rate.gamma: is missing"),
        ({"rate": {"kind": "scalar", "G": 1}}, "rate.D: is missing"),
        ({"schedule": "once"}, 'schedule: must be an object with a "kind" of constant'),
        ({"schedule": {"kind": "once", "T": 3}}, "schedule.T: unknown; allowed: kind"),
        ({"schedule": {"kind": "over_T"}}, "schedule.T: is missing"),
        ({"schedule": {"kind": "over_T", "T": 0}}, "schedule.T: must be a whole number of rounds"),
        ({"schedule": {"kind": "over_T", "T": 1.5}}, "schedule.T: must be a whole number of rounds"),
        ({"schedule": {"kind": "over_T", "T": True}}, "schedule.T: must be a whole number of rounds"),
        ({"schedule": {"kind": "xiao", "rho": -1}}, "schedule.rho: must be a number from 0"),
        ({"schedule": {"kind": "custom", "values": []}}, "schedule.values: must be a list of 1 to"),
        ({"schedule": {"kind": "custom", "values": [1, "x"]}}, r"schedule.values\[1\]: must be a number"),
        (
            {"schedule": {"kind": "custom", "values": [1, 2]}},
            r"schedule.values\[1\]: 2 is above the 1 before it",
        ),
        (
            {"schedule": {"kind": "custom", "values": [1, -1]}},
            r"schedule.values\[1\]: .* must not be negative",
        ),
    ],
)
def test_an_error_names_the_path_and_the_allowed_values(document, message):
    with pytest.raises(InvalidInput, match=message):
        Hyperparameters.from_json(document)


SCALAR = ScalarRate(1.0, 1.0)
SLOW = OverT(1000)


@pytest.mark.parametrize(
    ("hyper", "reason"),
    [
        (Hyperparameters("ftrl", rate=SCALAR), "scalar rate with family ftrl"),
        (Hyperparameters("comid", rate=SCALAR, schedule=SLOW), "scalar rate with family comid"),
        (Hyperparameters("aogd", rate=SCALAR, schedule=SLOW), "scalar rate with family aogd"),
        (Hyperparameters("comid", schedule=SLOW, psi_l2=0.1), "psi_l2 with family comid"),
        (Hyperparameters("aogd", schedule=SLOW, psi_l2=0.1), "psi_l2 with family aogd"),
        (Hyperparameters("comid"), "schedule once with family comid"),
        (Hyperparameters("aogd", "implicit"), "schedule once with family aogd"),
    ],
)
def test_updates_that_are_not_local_are_refused_with_a_reason(hyper, reason):
    assert reason in (refusal(hyper) or "")


@pytest.mark.parametrize("update", ["first_order", "implicit"])
@pytest.mark.parametrize(
    "hyper",
    [
        Hyperparameters(),
        Hyperparameters(rate=GammaRate(1.0, 20.0), schedule=SLOW, psi_l2=0.1, box=1.0),
        Hyperparameters("rda", rate=SCALAR, psi_l2=0.1),
        Hyperparameters("comid", schedule=SLOW, l2=1.0, box=1.0),
        Hyperparameters("aogd", rate=GammaRate(1.0), schedule=Custom((1.0, 0.5))),
    ],
)
def test_what_is_local_to_a_feature_is_served(hyper, update):
    assert refusal(Hyperparameters(**{**vars(hyper), "update": update})) is None
