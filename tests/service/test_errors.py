"""What every error of the service declares."""

from __future__ import annotations

import re

import pytest

from service.errors import MAX_PATH_LENGTH, Unprocessable, field_error
from tests.support.declared_errors import BASES, service_errors


def test_every_error_declares_a_code_of_its_own() -> None:
    codes = [vars(error).get("code", f"none of {error.__name__}") for error in service_errors()]
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes), codes
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("base", BASES)
def test_a_base_has_no_code(base) -> None:
    assert not hasattr(base, "code")


def test_the_detail_is_the_first_error_and_the_number_of_the_others() -> None:
    first, other = field_error(("label",), "is wrong", "invalid_value"), field_error((), "too", "required")
    assert Unprocessable([first]).detail == "label: is wrong"
    assert Unprocessable([other]).detail == "too"
    assert Unprocessable([first, other, other]).detail == "label: is wrong (and 2 more)"


def test_a_path_is_cut_where_a_name_is_long() -> None:
    assert len(field_error(("x" * 290, "y" * 290), "", "required")["path"]) == MAX_PATH_LENGTH + 1
