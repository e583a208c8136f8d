"""The fields of the JSON requests, and the bounds that no setting changes: the one declaration.

The key tables of the kernel are made from it, and so are the checks for unknown fields and the schemas of
OpenAPI (service/parsing). Bounds that are settings come with `Limits` and the parser's arguments.
"""

from typing import NamedTuple


class Fields(NamedTuple):
    """The fields of one kind of object; any other is unknown there."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.required + self.optional


EXAMPLE = Fields(("features", "label"), ("weight", "sample_rate", "event_id", "event_time"))
"""An example of an update."""
LABEL = Fields(("id", "label"), ("weight", "sample_rate"))
"""The label of a logged prediction, in an update."""
EXAMPLES = Fields(("examples",))
"""An update with a list of examples and labels."""
INSTANCE = Fields(("features",), ("id",))
"""An instance of a prediction."""
ONE_INSTANCE = Fields(INSTANCE.required, (*INSTANCE.optional, "log"))
"""A prediction of one instance."""
INSTANCES = Fields(("instances",), ("context", "log"))
"""A prediction of a list of instances."""
EXPLANATION = Fields(("features",), ("context",))
IMPRESSIONS = Fields(("ids",))

READ_APART = frozenset({"log"})
"""Fields that the kernel does not know: they are cut off the body before."""

MAX_ID_LENGTH = 256
"""The longest `id` and `event_id`, in characters. The kernel counts bytes and leaves more to pydantic."""
LAST_SECOND = 253402300799
"""The last second that RFC 3339 can write, 9999-12-31T23:59:59Z, since 1970."""
