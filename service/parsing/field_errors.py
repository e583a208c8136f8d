"""The errors that pydantic finds in a body, as those of a problem document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from model_core.errors import InputCode
from service.errors import MAX_ERRORS, FieldError, field_error

_CODES: dict[str, InputCode] = {
    "json_invalid": "invalid_json",
    "missing": "required",
    "extra_forbidden": "unknown_field",
    "dict_type": "wrong_type",
    "features_type": "wrong_type",
    "list_type": "wrong_type",
    "string_type": "wrong_type",
    "float_type": "wrong_type",
    "int_type": "wrong_type",
    "bool_type": "wrong_type",
    "finite_number": "out_of_range",
    "string_too_short": "wrong_length",
    "string_too_long": "wrong_length",
}
_DETAILS = {
    "missing": "this field is required",
    "extra_forbidden": "unknown field",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
}
_SUBJECT = re.compile(r"^\w+ should")


def field_errors(errors: Iterable[Mapping[str, Any]], skip: int = 0) -> list[FieldError]:
    """Reword the first MAX_ERRORS errors; the first `skip` parts of each location are not the client's."""
    return [
        field_error(error["loc"][skip:], _detail(error), _CODES.get(error["type"], "invalid_value"))
        for error in islice(errors, MAX_ERRORS)
    ]


def _detail(error: Mapping[str, Any]) -> str:
    return _DETAILS.get(error["type"]) or reworded(str(error["msg"]))


def reworded(message: str) -> str:
    """Put a message of pydantic into the words of the others: "must be ..." for "Input should be ..."."""
    return _SUBJECT.sub("must", message.removeprefix("Value error, "))
