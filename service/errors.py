"""Exceptions of the domain. They are raised deep and told once, at the edge: those of the service by
`problems.py`, those of commands by `cli.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypedDict

from model_core.errors import render_path

MAX_PATH_LENGTH = 300


class FieldError(TypedDict):
    """What is wrong with one part of a request body; `path` as `examples[3].label`, empty for the whole."""

    path: str
    detail: str


def field_error(path: Sequence[str | int], detail: str) -> FieldError:
    """A path repeats at most MAX_PATH_LENGTH characters of what a client sent."""
    rendered = render_path(path)
    if len(rendered) > MAX_PATH_LENGTH:
        rendered = f"{rendered[:MAX_PATH_LENGTH]}…"
    return FieldError(path=rendered, detail=detail)


class ServiceError(Exception):
    """An answer other than success, with what RFC 9457 wants to know about it.

    `extra` are further members of the problem document, `headers` further headers of the reply.
    `retry_after_seconds`: when the same request may succeed, where waiting helps; None where it does not.
    """

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retry_after_seconds: int | None = None

    def __init__(
        self,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers: dict[str, str] = dict(headers or {})
        if self.retry_after_seconds is not None:
            self.headers["Retry-After"] = str(self.retry_after_seconds)
        self.extra: dict[str, object] = dict(extra or {})


class UnknownModel(ServiceError):
    status = 404
    title = "Unknown model"

    def __init__(self, name: str, alias: str | None = None) -> None:
        """alias: by which it was asked for."""
        means = "" if alias is None else f" The alias {alias!r} means it; PUT /aliases/{alias} another one."
        super().__init__(f"There is no model {name!r}.{means}", extra={"model": name})
        self.name = name


class InvalidModelName(ServiceError):
    status = 422
    title = "Invalid model name"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:80]!r} is not a model name: 1 to 64 letters, digits, '.', '_' or '-' of ASCII,"
            " beginning with a letter or a digit."
        )
        self.name = name


class ModelConflict(ServiceError):
    """The model exists with another configuration."""

    status = 409
    title = "Model exists with another configuration"


class FixedAtCreation(ServiceError):
    """A part of a model's configuration that does not change in place."""

    status = 409
    title = "Fixed at creation"


class ModelExists(ServiceError):
    """A new model was to get a name that is taken."""

    status = 409
    title = "Model exists already"


class AliasConflict(ServiceError):
    """A name cannot be that of a model and an alias at once, and an alias does not stand for the model where
    that is to be changed.
    """

    status = 409
    title = "Name is an alias or a model"


class ContractMismatch(ServiceError):
    """A stored model's hash fingerprint or format version differs from what this code would write."""

    status = 409
    title = "Stored model is of another contract"


class Unprocessable(ServiceError):
    status = 422
    title = "Invalid request"

    def __init__(self, errors: Sequence[FieldError], detail: str | None = None) -> None:
        super().__init__(detail or summary_of(errors), extra={"errors": list(errors)})
        self.errors = list(errors)


class TooLarge(ServiceError):
    status = 413
    title = "Request body too large"


class UnsupportedMediaType(ServiceError):
    status = 415
    title = "Unsupported media type"


class SlowBody(ServiceError):
    """The client did not finish sending its body in time."""

    status = 408
    title = "Request body came too slowly"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Connection": "close"})


class LogFull(ServiceError):
    """The example log is over its backlog limit, or the server over its share of memory."""

    status = 429
    title = "Too much is waiting to be learned"
    retry_after_seconds = 1


class StateUnavailable(ServiceError):
    """The state is not in memory, or the call needs Redis, and Redis is away."""

    status = 503
    title = "State unavailable"
    retry_after_seconds = 1


class ModelDeleted(StateUnavailable):
    """It is in memory still, and nothing waits there any more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Model {name!r} was deleted or created anew.")


class ServerFull(ServiceError):
    """The server is at its maxmemory and took in nothing more."""

    status = 507
    title = "Redis is at its memory limit"


AppendOutcome = Literal["not_appended", "unknown"]
NO_ANSWER = "Redis did not answer in time."


class StreamRefused(ServiceError):
    """No further listener to live figures: there are enough, or the service stops."""

    status = 503
    title = "Stream refused"

    def __init__(self, detail: str, *, retry_after_seconds: int = 10) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)


class UpdateUnavailable(ServiceError):
    """An update was not acknowledged. `outcome` says whether that is known to mean that it did not happen."""

    status = 503
    title = "Update unavailable"
    retry_after_seconds = 1

    def __init__(self, outcome: AppendOutcome, event_ids: Sequence[str], why: str = NO_ANSWER) -> None:
        what = "Nothing was appended" if outcome == "not_appended" else "Whether it was appended is not known"
        super().__init__(
            f"{why} {what}; a retry under the same event ids learns once.",
            extra={"outcome": outcome, "event_ids": list(event_ids)},
        )
        self.outcome = outcome
        self.event_ids = list(event_ids)


class UnknownPrediction(ServiceError):
    status = 404
    title = "Unknown prediction"

    def __init__(self, prediction_id: str) -> None:
        super().__init__(
            f"No prediction {prediction_id[:80]!r} waits here: it was not logged (`log` in /predict), or by"
            " another model, or has expired.",
            extra={"id": prediction_id},
        )


class LabelConflict(ServiceError):
    """The prediction has another label already."""

    status = 409
    title = "The prediction has another label"

    def __init__(self, prediction_id: str) -> None:
        super().__init__(
            f"Prediction {prediction_id[:80]!r} was given the other label before; the first one stands.",
            extra={"id": prediction_id},
        )


class PredictionConflict(ServiceError):
    """Predictions under ids that were logged before with other features."""

    status = 409
    title = "The id belongs to another prediction"

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(
            f"{ids[0][:80]!r} was logged with other features before, which are kept; predictions need ids of"
            " their own.",
            extra={"ids": list(ids)},
        )


class LabelsUnavailable(ServiceError):
    """Redis did not answer in time; the same request again is safe."""

    status = 503
    title = "Labels unavailable"
    retry_after_seconds = 1

    def __init__(self, outcome: str, ids: Sequence[str]) -> None:
        super().__init__(
            "Redis did not answer in time; the same request again has the same effect once.",
            extra={"outcome": outcome, "ids": list(ids)},
        )


def summary_of(errors: Sequence[FieldError]) -> str:
    """The `detail` of a problem: the first error, and how many more there are."""
    first = errors[0]
    text = f"{first['path']}: {first['detail']}" if first["path"] else first["detail"]
    return text if len(errors) == 1 else f"{text} (and {len(errors) - 1} more)"


class CommandFailure(RuntimeError):
    """A command cannot go on; the text is one line for the person who gave it."""


class UnknownSnapshot(ServiceError):
    status = 404
    title = "Unknown snapshot"

    def __init__(self, model: str, wanted: str) -> None:
        if wanted == "newest":
            text = (
                f"There is no snapshot of model {model!r}, but for what restores may have saved: name its id."
            )
        else:
            text = f"There is no snapshot of model {model!r} with the id or the tag {wanted[:80]!r}."
        super().__init__(text)


class SnapshotLeaving(ServiceError):
    """It was to get a tag when retention, or somebody, was about to delete it, or just had."""

    status = 409
    title = "Snapshot is being deleted"

    def __init__(self, model: str, snapshot: str, *, gone: bool) -> None:
        what = "was deleted just now" if gone else "is being deleted by retention"
        super().__init__(
            f"Snapshot {snapshot} of model {model!r} {what} and got no tag; tag a newer one, or list what is"
            " there and try again."
        )


class DamagedSnapshot(ServiceError):
    """A file that is not, byte for byte, what was written."""

    status = 409
    title = "Snapshot cannot be used"


class DamagedLogSegment(ServiceError):
    """A file of the log archive that is not, byte for byte, what was written."""

    status = 409
    title = "Segment of the log archive cannot be used"


class StoreUnavailable(ServiceError):
    """The store does not answer, or takes nothing more."""

    status = 503
    title = "Snapshot store unavailable"
    retry_after_seconds = 10


class NoLearner(ServiceError):
    """Nobody took the snapshot."""

    status = 503
    title = "No learner"
    retry_after_seconds = 5

    def __init__(self, model: str) -> None:
        super().__init__(
            f"No learner of model {model!r} took the snapshot: is one running, and does it learn?"
        )


class SnapshotFailed(ServiceError):
    """A fault of this service; its learner's log has the whole of it."""

    title = "Snapshot failed"


class SnapshotMismatch(ServiceError):
    """The snapshot's weights would mean something else in this model."""

    status = 409
    title = "Snapshot does not fit the model"


class LogIncomplete(ServiceError):
    """The log no longer holds what was to be learned again."""

    status = 409
    title = "Log does not reach back to the snapshot"


class RestoreConflict(ServiceError):
    """Another restore or load came first."""

    status = 409
    title = "Model was restored or replaced meanwhile"


class UnusableStore(ServiceError):
    """The setting names no store that this installation can use."""

    title = "Snapshot store cannot be used"
