"""Schemas of logs: a JSON document of what the columns mean, which training and serving share.

The column-related part becomes the ReadOptions that flags make, too; types, transforms and crosses become the
hash contract of the model, so that a live request is hashed as a row of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract, Limits
from model_core.text.problems import Labels, Namespaces
from service.errors import CommandFailure
from service.parsing.field_errors import field_errors
from service.parsing.files.columns import expanded, nearest, parse_columns
from service.parsing.files.rows import Format, ReadOptions, TimePart, TimeRule
from service.parsing.files.times import SEASONS, UNITS_PER_SECOND, zone_of

ColumnType = Literal["category", "number", "json"]
Names = Annotated[list[str], Field(default_factory=list)]

TABLES = ("csv", "tsv", "records", "parquet", "arrow")
_OF_ANY_FORMAT = frozenset(
    {"format", "labels", "namespaces", "types", "transforms", "numeric", "crosses", "missing"}
)


class BadSchema(CommandFailure):
    """A schema that cannot be used; the text says where and why."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _with_column(given: Any) -> Any:
    """Read the name of a column alone as the object that it abbreviates."""
    return {"column": given} if isinstance(given, str) else given


def _without_column(value: Any) -> Any:
    """The reverse of it."""
    return value["column"] if isinstance(value, dict) and value.keys() == {"column"} else value


class LabelColumn(_Part):
    """The column of the label; each text is a click or none, and one list may be left out: any other text."""

    column: str
    positive: Annotated[list[str] | None, Field(min_length=1)] = None
    negative: Annotated[list[str] | None, Field(min_length=1)] = None


class TimeColumn(_Part):
    """The column of the time of an event, see TimeRule; each part is a feature of its name."""

    column: str
    format: str = "iso"
    zone: str = "UTC"
    parts: Annotated[list[TimePart], Field(default_factory=list)]

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        try:
            zone_of(self.zone)
        except InvalidInput as unknown:
            raise ValueError(str(unknown)) from None
        if self.format != "iso" and self.format not in UNITS_PER_SECOND and "%" not in self.format:
            raise ValueError(
                f"format: {self.format!r} is none of iso, {', '.join(UNITS_PER_SECOND)} nor a pattern such as"
                " %Y-%m-%d %H:%M:%S"
            )
        return self


class Schema(_Part):
    """A schema. In all lists and keys of columns, `I1-I13` stands for I1, I2, ... I13.

    format, labels, namespaces, columns, header, separator, null: see ReadOptions. label: a column, or its
    texts, too. weight, sample_rate, event_id, time: columns. drop: columns that are no features.
    types: "category" or "number", which the model declares, or "json": numbers where JSON would write one,
    else texts. transforms, numeric, crosses, missing: as in the hash contract. lists: the separators of the
    items of columns. optional: columns that not every file has.
    """

    format: Format | None = None
    labels: Labels | None = None
    namespaces: Namespaces = "ignore"
    columns: list[str] | None = None
    header: bool | None = None
    separator: Annotated[str | None, Field(min_length=1, max_length=1)] = None
    null: Names
    label: Annotated[LabelColumn, BeforeValidator(_with_column)] = LabelColumn(column="label")
    weight: str | None = None
    sample_rate: str | None = None
    event_id: str | None = None
    time: Annotated[TimeColumn | None, BeforeValidator(_with_column)] = None
    drop: Names
    types: Annotated[dict[str, ColumnType], Field(default_factory=dict)]
    numeric: str | dict[str, float] | None = None
    transforms: Annotated[dict[str, str | dict[str, float]], Field(default_factory=dict)]
    crosses: Annotated[list[list[str]], Field(default_factory=list)]
    missing: Literal["ignore", "indicator"] | None = None
    lists: Annotated[dict[str, Annotated[str, Field(min_length=1)]], Field(default_factory=dict)]
    optional: Names

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.format is not None and self.format not in TABLES:
            for name in sorted(self.model_fields_set - _OF_ANY_FORMAT):
                raise ValueError(f"{name}: {self.format} has no columns")
        if self.labels is not None and (self.label.positive, self.label.negative) != (None, None):
            raise ValueError("labels: the texts of `label` say already which ones are clicks")
        try:
            HashContract.from_json(self.hashing)
            known = None if self.columns is None else parse_columns(",".join(self.columns))
        except InvalidInput as wrong:
            raise ValueError(str(wrong)) from None
        if known is not None:
            for name, place in self._mentioned().items():
                if name not in known:
                    raise ValueError(f"{place}: no column {name!r}{nearest(name, known)}")
        return self

    @cached_property
    def hashing(self) -> dict[str, Any]:
        """The part of the model's hash contract that it requires, as in the body of PUT /models/{name}."""
        types = {n: kind for n, kind in _spread(self.types).items() if kind != "json"}
        transforms = _spread(self.transforms)
        if self.time is not None:
            types |= {part: "number" if part in SEASONS else "category" for part in self.time.parts}
            transforms = {part: "raw" for part in self.time.parts if part in SEASONS} | transforms
        given = {
            "types": types,
            "transforms": transforms,
            "crosses": self.crosses,
            "numeric": self.numeric,
            "missing": self.missing,
        }
        return {name: value for name, value in given.items() if value}

    def options(self, limits: Limits) -> ReadOptions:
        """Return the options for reading a file."""
        label, time, types = self.label, self.time, _spread(self.types)
        return ReadOptions(
            labels=self.labels,
            namespaces=self.namespaces,
            limits=limits,
            columns=None if self.columns is None else expanded(self.columns),
            header=self.header,
            separator=self.separator,
            label_column=label.column,
            positive=None if label.positive is None else frozenset(label.positive),
            negative=None if label.negative is None else frozenset(label.negative),
            weight_column=self.weight,
            sample_rate_column=self.sample_rate,
            event_id_column=self.event_id,
            time=None if time is None else TimeRule(time.column, time.format, time.zone, tuple(time.parts)),
            ignored_columns=frozenset(expanded(self.drop)),
            nulls=frozenset(self.null),
            json_columns=frozenset(name for name, kind in types.items() if kind == "json"),
            lists=_spread(self.lists),
            mentioned=self._mentioned(),
            optional=frozenset(expanded(self.optional)),
        )

    def to_json(self) -> dict[str, Any]:
        """The document, without what is as by default."""
        document = self.model_dump(exclude_unset=True)
        return {name: _without_column(value) for name, value in document.items()}

    def _mentioned(self) -> dict[str, str]:
        """The columns that there have to be, and the field that names each."""
        fields: dict[str, Sequence[str]] = {
            "drop": self.drop,
            "types": list(self.types),
            "transforms": list(self.transforms),
            "crosses": [name for cross in self.crosses for name in cross],
            "lists": list(self.lists),
            "label": [self.label.column],
            "weight": [self.weight] if self.weight else [],
            "sample_rate": [self.sample_rate] if self.sample_rate else [],
            "event_id": [self.event_id] if self.event_id else [],
            "time": [self.time.column] if self.time else [],
        }
        made = {*expanded(self.optional), *(self.time.parts if self.time else ())}
        return {
            name: f"`{field}` of the schema"
            for field, names in fields.items()
            for name in expanded(names)
            if name not in made
        }


@cache
def load_schema(name: str) -> Schema:
    """Return the schema of a known log, or that in a file of JSON. Raises BadSchema."""
    from service.parsing.files.known_schemas import KNOWN_SCHEMAS

    if name in KNOWN_SCHEMAS:
        return schema_of(KNOWN_SCHEMAS[name], name)
    try:
        text = Path(name).read_bytes()
    except OSError as failure:
        known = ", ".join(KNOWN_SCHEMAS)
        raise BadSchema(
            f"{name}: {failure.strerror}; a schema is a file of JSON, or one of {known}"
            f"{nearest(name, tuple(KNOWN_SCHEMAS))}"
        ) from failure
    try:
        document = json.loads(text)
    except ValueError as wrong:
        raise BadSchema(f"{name}: no JSON: {wrong}") from None
    return schema_of(document, name)


def schema_of(document: object, name: str) -> Schema:
    """Return the schema of a JSON document, which errors call `name`. Raises BadSchema."""
    try:
        return Schema.model_validate(document)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        (error,) = field_errors([first])
        hint = _nearest_field(first["loc"]) if first["type"] == "extra_forbidden" else ""
        place = f"{error['path']}: " if error["path"] else ""
        raise BadSchema(f"{name}: {place}{error['detail']}{hint}") from None


def _nearest_field(path: Sequence[str | int]) -> str:
    parts: dict[str | int, type[BaseModel]] = {"label": LabelColumn, "time": TimeColumn}
    fields = parts.get(path[0], Schema) if len(path) > 1 else Schema
    return nearest(str(path[-1]), tuple(fields.model_fields))


def _spread(by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a key for each name that a range stands for."""
    return {name: value for key, value in by_name.items() for name in expanded([key])}
