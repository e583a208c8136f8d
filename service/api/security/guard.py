"""Checks the token of each request against the access that its route declares."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from service.api.security.access import ADMIN_ALL, ANYBODY, DECLARATION, READ_ALL, Access
from service.api.security.tokens import Grant, TokenFile
from service.errors import ServiceError
from service.models.config.model import DEFAULT_MODEL

_OF_FASTAPI = {"/openapi.json": ANYBODY}
_READING = ("GET", "HEAD")
GRANT = "ftrl.grant"
"""In the scope of a request with a token: its grant."""


class Unauthorized(ServiceError):
    status = 401
    code = "unauthorized"
    title = "Token needed"


class Forbidden(ServiceError):
    status = 403
    code = "forbidden"
    title = "Token does not allow this"


class Guard:
    """Accepts a token as `Authorization: Bearer TOKEN`, or, from browsers, as the password of Basic."""

    def __init__(self, tokens: TokenFile, routes: Sequence[BaseRoute]) -> None:
        self._tokens = tokens
        self._routes = routes
        self._posts = {
            route.path: _declared(route) or ADMIN_ALL
            for route in routes
            if isinstance(route, APIRoute) and route.methods == {"POST"}
        }

    def check(self, scope: Scope) -> None:
        """Raises Unauthorized, Forbidden."""
        self._check(scope, *self._access(scope))

    def check_post(self, scope: Scope, template: str, model: str) -> None:
        """Check a POST whose route is known. Raises Unauthorized, Forbidden."""
        self._check(scope, self._posts[template], model)

    def _check(self, scope: Scope, access: Access, model: str) -> None:
        if not access.token:
            return
        grant = scope[GRANT] = self._grant(scope)
        if access.models == "any":
            return
        which = model if access.models == "one" else None
        if not grant.allows(access.scope, which):
            raise _forbidden(grant, access.scope, which)

    def _access(self, scope: Scope) -> tuple[Access, str]:
        """Return the access that a request needs, and the model that its path names.

        A path without this method is treated as its other methods, but needs an admin unless the method
        reads; a path without any route as one that is for all models.
        """
        wrong_method: tuple[Access, str] | None = None
        by_default = READ_ALL if scope["method"] in _READING else ADMIN_ALL
        for route in self._routes:
            match, found = route.matches(scope)
            if match is not Match.NONE:
                declared, model = _declared(route), found["path_params"].get("name", DEFAULT_MODEL)
                if match is Match.FULL:
                    return declared or by_default, model
                wrong_method = replace(declared or by_default, scope=by_default.scope), model
        return wrong_method or (by_default, DEFAULT_MODEL)

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


def _declared(route: BaseRoute) -> Access | None:
    """Return None for a route without a declaration, which a token of a single model cannot call."""
    if isinstance(route, APIRoute) and route.openapi_extra:
        return Access(**route.openapi_extra[DECLARATION])
    return _OF_FASTAPI.get(getattr(route, "path", ""))


def _unauthorized(scope: Scope, given: bool) -> Unauthorized:
    """Challenge a browser that opens a page with Basic, so that a person can enter a token."""
    challenge = 'Bearer realm="ftrl"'
    if given:
        challenge += ', error="invalid_token"'
    elif scope["method"] in _READING and _accepts_html(scope["headers"]):
        challenge = 'Basic realm="ftrl: any user, a token as the password", charset="UTF-8"'
    detail = (
        "This token is unknown: check it, or ask for another."
        if given
        else "Send Authorization: Bearer TOKEN."
    )
    return Unauthorized(detail, headers={"WWW-Authenticate": challenge})


def require_admin(grant: Grant | None, model: str) -> None:
    """Check that the token of a request, if it needs one, allows changes of another model than that of the
    path. Raises Forbidden.
    """
    if grant is not None and not grant.allows("admin", model):
        raise _forbidden(grant, "admin", model)


def _forbidden(grant: Grant, scope: str | None, model: str | None) -> Forbidden:
    needed = f"the scope {scope!r}" if scope else "any scope"
    where = f"the model {model[:80]!r}" if model is not None else "all models"
    challenge = 'Bearer realm="ftrl", error="insufficient_scope"' + (f', scope="{scope}"' if scope else "")
    return Forbidden(
        f"This call needs {needed} for {where}: use another token than {grant.name!r}.",
        headers={"WWW-Authenticate": challenge},
    )


def _refuse_other_origins(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise Forbidden for a page of another site: browsers send Basic credentials with its requests."""
    host = origin = None
    for name, value in headers:
        if name == b"host":
            host = value.decode("latin-1")
        elif name == b"origin":
            origin = value.decode("latin-1")
    if origin is not None and _host_of(origin) != host:
        raise Forbidden(
            f"A page of {origin[:80]!r} must not use the token entered for {(host or '')[:80]!r}."
        )


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
