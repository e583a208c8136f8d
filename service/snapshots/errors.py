"""What can be wrong with snapshots, as answers."""

from __future__ import annotations

from service.errors import ServiceError


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
