"""Errors of the domain: raised where they occur, reported once at the edge.

`api/problems.py` turns a ServiceError into a problem document, `cli/` a CommandFailure into one line. Each
class has a `code` of its own, which clients and tests rely on; the texts are for people and may change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypedDict

from model_core.errors import InputCode, render_path

MAX_PATH_LENGTH = 300
MAX_ERRORS = 100  # of one reply


class FieldError(TypedDict):
    """One mistake in a request; `path` as `examples[3].label`, empty for the whole body."""

    path: str
    code: InputCode
    detail: str


def field_error(path: Sequence[str | int], detail: str, code: InputCode) -> FieldError:
    """Repeat at most MAX_PATH_LENGTH characters of a path, whose names come from a client."""
    rendered = render_path(path)
    if len(rendered) > MAX_PATH_LENGTH:
        rendered = f"{rendered[:MAX_PATH_LENGTH]}…"
    return FieldError(path=rendered, code=code, detail=detail)


class CommandFailure(RuntimeError):
    """A command cannot continue; the text is one line for the person who ran it."""


class Interrupted(CommandFailure):
    """Ctrl-C has ended a command; the text says what it has done by then."""


class ServiceError(Exception):
    """A reply other than success, with the members of its problem document (RFC 9457).

    Every class that is raised declares its `code`; `title` defaults to the code in words.
    `retry_after_seconds`: when the same request may succeed, None if waiting does not help. `extra`: further
    members of the problem document. `headers`: further headers of the reply.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str]
    title: ClassVar[str] = ""
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


class NotFound(ServiceError):
    status = 404


class Conflict(ServiceError):
    status = 409


class Unavailable(ServiceError):
    status = 503
    retry_after_seconds = 1


class Unprocessable(ServiceError):
    status = 422
    code = "unprocessable"
    title = "Invalid request"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        """The detail is the first error, and the number of the others."""
        first = errors[0]
        detail = f"{first['path']}: {first['detail']}" if first["path"] else first["detail"]
        if len(errors) > 1:
            detail += f" (and {len(errors) - 1} more)"
        super().__init__(detail, extra={"errors": list(errors)})
        self.errors = list(errors)


class TooLarge(ServiceError):
    status = 413
    code = "too_large"
    title = "Request body too large"


class UnsupportedMediaType(ServiceError):
    status = 415
    code = "unsupported_media_type"


class UnsupportedContentEncoding(ServiceError):
    status = 415
    code = "unsupported_content_encoding"


class SlowBody(ServiceError):
    status = 408
    code = "slow_body"
    title = "Request body came too slowly"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Connection": "close"})


class StreamRefused(Unavailable):
    """The process accepts no further listener to live figures: its limit is reached, or it is stopping."""

    code = "stream_refused"

    def __init__(self, detail: str, *, retry_after_seconds: int = 10) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)


class UnknownModel(NotFound):
    code = "unknown_model"

    def __init__(self, name: str, alias: str | None = None) -> None:
        """alias: the name that the request used, if it was an alias."""
        hint = (
            "" if alias is None else f" The alias {alias!r} points to it: repoint it (PUT /aliases/{alias})."
        )
        super().__init__(f"There is no model {name!r}.{hint}", extra={"model": name})
        self.name = name


class InvalidModelName(ServiceError):
    status = 422
    code = "invalid_model_name"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:80]!r} is not a model name: use 1 to 64 ASCII letters, digits, '.', '_' or '-',"
            " beginning with a letter or a digit."
        )
        self.name = name


class ModelConflict(Conflict):
    code = "model_conflict"
    title = "Model exists with another configuration"


class ModelExists(Conflict):
    code = "model_exists"
    title = "Model exists already"


class FixedAtCreation(Conflict):
    code = "fixed_at_creation"


class AliasConflict(Conflict):
    """A name cannot be both a model and an alias, and a model is changed under its own name only."""

    code = "alias_conflict"
    title = "Name is an alias or a model"


class ModelFollows(Conflict):
    """The model learns the log of another one: it takes no examples of its own."""

    code = "model_follows"
    title = "Model learns the log of another one"

    def __init__(self, name: str, champion: str) -> None:
        super().__init__(
            f"Model {name!r} is a challenger: it learns the log of {champion!r}. Send that to {champion!r};"
            f" {name!r} learns it as well.",
            extra={"model": name, "champion": champion},
        )


class ChallengerRefused(Conflict):
    """The model cannot learn the log of that one."""

    code = "challenger_refused"
    title = "Model cannot follow"


class ContractMismatch(Conflict):
    """The stored model has another hash fingerprint or format version than this version writes."""

    code = "contract_mismatch"
    title = "Stored model is of another contract"


class IncompleteState(ContractMismatch):
    """Commits since the last checkpoint are missing in Redis: its rows are not those of any commit."""

    code = "incomplete_state"
    title = "Stored state is not complete"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"Commits of model {model!r} since its last checkpoint are missing in Redis: its state is not"
            f" complete. Restore a snapshot: ftrl snapshot restore newest --replay-log --model {model}"
        )


class StateUnavailable(Unavailable):
    """The call needs Redis, or a state that is not in memory, and Redis does not answer."""

    code = "state_unavailable"


class ModelDeleted(StateUnavailable):
    """The model is still in memory here, but no longer in Redis."""

    code = "model_deleted"

    def __init__(self, name: str) -> None:
        super().__init__(f"Model {name!r} was deleted or recreated.")


class ServerFull(ServiceError):
    """Redis is at its maxmemory and stored nothing."""

    status = 507
    code = "server_full"
    title = "Redis is at its memory limit"


class LogFull(ServiceError):
    """The example log has reached its backlog limit, or Redis its share of memory."""

    status = 429
    code = "log_full"
    title = "Too many examples are pending"
    retry_after_seconds = 1


AppendOutcome = Literal["not_appended", "unknown"]
NO_ANSWER = "Redis did not answer in time."
LOST = "Redis failed over or restarted, and what it had acknowledged may be lost."


class UpdateUnavailable(Unavailable):
    """An update was not acknowledged; `outcome` says whether it is certain that nothing was appended."""

    code = "update_unavailable"

    def __init__(self, outcome: AppendOutcome, event_ids: Sequence[str], why: str = NO_ANSWER) -> None:
        what = "Nothing was appended" if outcome == "not_appended" else "The examples may have been appended"
        super().__init__(
            f"{why} {what}; retry under the same event ids, each is learned once.",
            extra={"outcome": outcome, "event_ids": list(event_ids)},
        )
        self.outcome = outcome
        self.event_ids = list(event_ids)
        self.why = why


class UnknownPrediction(NotFound):
    code = "unknown_prediction"

    def __init__(self, prediction_id: str) -> None:
        super().__init__(
            f"There is no pending prediction {prediction_id[:80]!r}: it was not logged (`log` in /predict),"
            " or by another model, or it has expired.",
            extra={"id": prediction_id},
        )


class LabelConflict(Conflict):
    code = "label_conflict"
    title = "The prediction has another label"

    def __init__(self, prediction_id: str) -> None:
        super().__init__(
            f"Prediction {prediction_id[:80]!r} already has another label, which stays.",
            extra={"id": prediction_id},
        )


class PredictionConflict(Conflict):
    code = "prediction_conflict"
    title = "The id belongs to another prediction"

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(
            f"{ids[0][:80]!r} was logged with other features before, which stay: give each prediction its own"
            " id.",
            extra={"ids": list(ids)},
        )


class LabelsUnavailable(Unavailable):
    """Redis did not answer in time, or may have lost what it acknowledged; repeating the request is safe."""

    code = "labels_unavailable"

    def __init__(self, outcome: str, ids: Sequence[str], why: str = NO_ANSWER) -> None:
        super().__init__(
            f"{why} Send the same request again: it takes effect once.",
            extra={"outcome": outcome, "ids": list(ids)},
        )


class UnknownSnapshot(NotFound):
    code = "unknown_snapshot"

    def __init__(self, model: str, wanted: str) -> None:
        if wanted == "newest":
            text = (
                f"Model {model!r} has no snapshot, except those that restores may have saved: name one by id."
            )
        else:
            text = f"Model {model!r} has no snapshot with the id or tag {wanted[:80]!r}."
        super().__init__(text)


class SnapshotLeaving(Conflict):
    """The snapshot cannot be tagged: it is being deleted, or was deleted just now."""

    code = "snapshot_leaving"
    title = "Snapshot is being deleted"

    def __init__(self, model: str, snapshot: str, *, gone: bool) -> None:
        what = "was deleted just now" if gone else "is being deleted by retention"
        super().__init__(
            f"Snapshot {snapshot} of model {model!r} {what} and was not tagged: tag a newer one, or list the"
            " snapshots and try again."
        )


class SnapshotMismatch(Conflict):
    """The snapshot's weights would have another meaning in this model."""

    code = "snapshot_mismatch"
    title = "Snapshot does not fit the model"


class DamagedSnapshot(Conflict):
    """The file is not, byte for byte, what was written."""

    code = "damaged_snapshot"
    title = "Snapshot cannot be used"


class DamagedLogSegment(Conflict):
    """A file of the log archive is not, byte for byte, what was written."""

    code = "damaged_log_segment"
    title = "Segment of the log archive cannot be used"


class LogIncomplete(Conflict):
    """The log no longer holds what would have to be learned again."""

    code = "log_incomplete"
    title = "Log does not reach back to the snapshot"


class RestoreConflict(Conflict):
    code = "restore_conflict"
    title = "Model was restored or replaced meanwhile"


class NoLearner(Unavailable):
    code = "no_learner"
    retry_after_seconds = 5

    def __init__(self, model: str) -> None:
        super().__init__(f"No learner of model {model!r} took the snapshot: check that one runs and learns.")


class SnapshotFailed(ServiceError):
    """A fault of this service; the learner's log has the details."""

    code = "snapshot_failed"


class StoreUnavailable(Unavailable):
    """The snapshot store does not answer, or accepts no more data."""

    code = "store_unavailable"
    title = "Snapshot store unavailable"
    retry_after_seconds = 10
