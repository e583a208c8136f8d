import pickle

import pytest

from model_core.errors import InvalidInput, render_path


@pytest.mark.parametrize(
    ("path", "rendered"),
    [
        ((), ""),
        (("label",), "label"),
        (("examples", 3, "features", "age"), "examples[3].features.age"),
        ((0, "features"), "[0].features"),
    ],
)
def test_a_path_reads_like_an_expression(path: tuple[str | int, ...], rendered: str) -> None:
    assert render_path(path) == rendered


def test_the_message_of_invalid_input_has_path_and_detail() -> None:
    assert str(InvalidInput(("features", "age"), "NaN is not a value")) == "features.age: NaN is not a value"
    assert str(InvalidInput((), "not an object")) == "not an object"


def test_invalid_input_can_be_seen_from_further_out() -> None:
    assert InvalidInput(("features",), "no").within("examples", 2).path == ("examples", 2, "features")


def test_invalid_input_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(InvalidInput(("a", 1), "no")))
    assert (copy.path, copy.detail) == (("a", 1), "no")
