"""What `service/api/server` relies on in uvicorn beyond its documented interface.

The upper bound in pyproject.toml is raised once this passes with the newer version.
"""

from __future__ import annotations

import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


@pytest.mark.parametrize(
    "method",
    [
        *("connection_made", "connection_lost", "data_received", "shutdown"),
        *("pause_writing", "resume_writing"),
        *("on_message_begin", "on_headers_complete", "on_message_complete", "on_response_complete"),
    ],
)
def test_the_protocol_has_the_methods_that_are_extended(method: str) -> None:
    assert callable(getattr(HttpToolsProtocol, method))


@pytest.mark.parametrize("attribute", ["pipeline", "cycle", "flow", "transport", "loop"])
def test_the_protocol_sets_the_attributes_that_are_read(attribute: str) -> None:
    assert f"self.{attribute}" in inspect.getsource(HttpToolsProtocol.__init__)


def test_the_protocol_is_made_as_pending_connections_need_it() -> None:
    parameters = inspect.signature(HttpToolsProtocol.__init__).parameters
    assert {"config", "server_state", "app_state", "_loop"} <= parameters.keys()


@pytest.mark.parametrize("method", ["startup", "shutdown", "on_tick", "handle_exit"])
def test_the_server_has_the_steps_that_are_extended(method: str) -> None:
    assert callable(getattr(uvicorn.Server, method))


@pytest.mark.parametrize("attribute", ["started", "should_exit", "server_state"])
def test_the_server_sets_the_attributes_that_are_read(attribute: str) -> None:
    assert f"self.{attribute}" in inspect.getsource(uvicorn.Server.__init__)
