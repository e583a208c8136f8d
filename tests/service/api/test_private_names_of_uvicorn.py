"""What `service/api/server` relies on in uvicorn beyond its documented interface.

The upper bound in pyproject.toml is raised once this passes with the newer version.
"""

from __future__ import annotations

import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle


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


@pytest.mark.parametrize("attribute", ["pipeline", "cycle", "flow", "transport", "loop", "scope"])
def test_the_protocol_sets_the_attributes_that_are_read(attribute: str) -> None:
    assert f"self.{attribute}" in inspect.getsource(HttpToolsProtocol.__init__)


@pytest.mark.parametrize(
    "attribute",
    [
        *("transport", "flow", "disconnected", "keep_alive", "waiting_for_100_continue", "message_event"),
        *("default_headers", "response_started", "response_complete", "on_response", "body", "more_body"),
    ],
)
def test_the_cycle_has_what_an_exchange_reads_and_sets(attribute: str) -> None:
    assert f"self.{attribute} = " in inspect.getsource(RequestResponseCycle.__init__)


def test_a_cycle_ends_as_an_exchange_ends_it() -> None:
    sends = inspect.getsource(RequestResponseCycle.send)
    end = sends[sends.index("# Handle response completion") : sends.index("# Response already sent")]
    assert [line.strip() for line in end.splitlines() if line.strip()][1:-1] == [
        "if not more_body:",
        "if self.expected_content_length != 0:",
        'raise RuntimeError("Response content shorter than Content-Length")',
        "self.response_complete = True",
        "self.message_event.set()",
        "if not self.keep_alive:",
        "self.transport.close()",
        "self.on_response()",
    ]
    assert STATUS_LINE[202] == b"HTTP/1.1 202 Accepted\r\n"


def test_the_protocol_is_made_as_pending_connections_need_it() -> None:
    parameters = inspect.signature(HttpToolsProtocol.__init__).parameters
    assert {"config", "server_state", "app_state", "_loop"} <= parameters.keys()


@pytest.mark.parametrize("method", ["startup", "shutdown", "on_tick", "handle_exit"])
def test_the_server_has_the_steps_that_are_extended(method: str) -> None:
    assert callable(getattr(uvicorn.Server, method))


@pytest.mark.parametrize("attribute", ["started", "should_exit", "server_state"])
def test_the_server_sets_the_attributes_that_are_read(attribute: str) -> None:
    assert f"self.{attribute}" in inspect.getsource(uvicorn.Server.__init__)
