"""Which token a request needs, and what is answered where it has none that fits."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import Scope

from service.errors import ServiceError
from service.model_config import DEFAULT_MODEL
from service.security.tokens import Grant, TokenFile

OPEN_PATHS = frozenset({"/livez", "/readyz"})
SCOPE_OF_VERB = {
    "predict": "predict",
    "explain": "predict",
    "update": "update",
    "impressions": "update",
    "feedback": "update",
}
_MODELS = "/models/"
_BEYOND_ONE_MODEL = frozenset({"clone"})
_FOR_ANYBODY = frozenset({"/", "/docs", "/openapi.json", "/metrics"})  # who has any token
_PAGE = "/dashboard/"
_READING = ("GET", "HEAD")


class Unauthorized(ServiceError):
    status = 401
    title = "Token needed"


class Forbidden(ServiceError):
    status = 403
    title = "Token does not allow this"


class Guard:
    """Tokens come as `Authorization: Bearer TOKEN`, or, for browsers, as the password of Basic."""

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens

    def check(self, scope: Scope) -> None:
        """Raises Unauthorized, Forbidden."""
        path: str = scope["path"]
        if path in OPEN_PATHS:
            return
        grant = self._grant(scope)
        needed, model = _needed(scope["method"], path)
        if path in _FOR_ANYBODY or path.startswith(_PAGE):
            return
        if not grant.allows(needed, model):
            raise _forbidden(grant, needed, model)

    def _grant(self, scope: Scope) -> Grant:
        given = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                given = value
                break
        kind, _, credentials = given.partition(b" ")
        kind = kind.lower()
        if kind == b"basic":
            _refuse_other_origins(scope["headers"])
            credentials = _password(credentials)
        grant = self._tokens.grant(credentials.strip()) if kind in (b"bearer", b"basic") else None
        if grant is None:
            raise _unauthorized(scope, bool(given))
        return grant


def _needed(method: str, path: str) -> tuple[str | None, str | None]:
    """The scope, None for any, and the model, None for all."""
    model: str | None
    if path.startswith(_MODELS):
        model, _, verb = path[len(_MODELS) :].partition("/")
    else:
        verb = path[1:]
        model = DEFAULT_MODEL if verb in SCOPE_OF_VERB else None
    if verb in _BEYOND_ONE_MODEL:
        model = None
    if method in _READING:
        return None, model
    return (SCOPE_OF_VERB.get(verb, "admin") if method == "POST" else "admin"), model


def _unauthorized(scope: Scope, given: bool) -> Unauthorized:
    """A browser that opens a page is asked for Basic, so that a person can enter a token."""
    challenge = 'Bearer realm="ftrl"'
    if given:
        challenge += ', error="invalid_token"'
    elif scope["method"] in _READING and _accepts_html(scope["headers"]):
        challenge = 'Basic realm="ftrl: any user, a token as the password", charset="UTF-8"'
    detail = "This token is not known here." if given else "Send Authorization: Bearer TOKEN."
    return Unauthorized(detail, headers={"WWW-Authenticate": challenge})


def _forbidden(grant: Grant, scope: str | None, model: str | None) -> Forbidden:
    needed = f"the scope {scope!r}" if scope else "any scope"
    where = f"the model {model[:80]!r}" if model is not None else "all models"
    challenge = 'Bearer realm="ftrl", error="insufficient_scope"' + (f', scope="{scope}"' if scope else "")
    return Forbidden(
        f"This needs {needed} for {where}; the token {grant.name!r} does not have it.",
        headers={"WWW-Authenticate": challenge},
    )


def _refuse_other_origins(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """A browser sends what was entered for Basic also with requests that another site's page made."""
    host = origin = None
    for name, value in headers:
        if name == b"host":
            host = value.decode("latin-1")
        elif name == b"origin":
            origin = value.decode("latin-1")
    if origin is not None and _host_of(origin) != host:
        raise Forbidden(f"A page of {origin[:80]!r} may not use the token entered for {(host or '')[:80]!r}.")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as http://[
        return None


def _password(credentials: bytes) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _accepts_html(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in headers)
