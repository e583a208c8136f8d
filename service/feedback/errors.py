"""What is answered where feedback is refused."""

from __future__ import annotations

from collections.abc import Sequence

from service.errors import ServiceError


class UnknownPrediction(ServiceError):
    status = 404
    title = "Unknown prediction"

    def __init__(self, prediction_id: str) -> None:
        super().__init__(
            f"No prediction {prediction_id[:80]!r} waits: it was never logged, or has expired.",
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

    def __init__(self, outcome: str, ids: Sequence[str]) -> None:
        super().__init__(
            "Redis did not answer in time; the same request again has the same effect once.",
            headers={"Retry-After": "1"},
            extra={"outcome": outcome, "ids": list(ids)},
        )
