"""The service that the tests of the client call."""

from tests.service.api.conftest import api, live_api, model

__all__ = ["api", "live_api", "model"]
