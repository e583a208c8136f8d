"""Bearer tokens: what one may do, and the file that knows them by their digests.

A token is 256 random bits, so that nobody guesses it however fast a digest is computed. One round of SHA-256
therefore keeps it as well as a password hash would, which exists to slow down the guessing of what people
choose, and which would cost milliseconds at every request.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

PREFIX = "ftrl_"
SCOPES = ("predict", "update", "admin")
LOOK_EVERY_SECONDS = 1.0
_DIGEST = re.compile(r"[0-9a-f]{64}")


class TokenFileError(ValueError):
    """The file cannot be used; the text says which line and why, and holds no token."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of a token may do. `models`: None stands for all. `admin` includes the other scopes."""

    digest: bytes
    name: str
    scopes: frozenset[str]
    models: frozenset[str] | None

    def allows(self, scope: str | None, model: str | None) -> bool:
        """`scope` None: any will do. `model` None: no particular one, but all of them."""
        scope_fits = scope is None or scope in self.scopes or "admin" in self.scopes
        return scope_fits and (self.models is None or model in self.models)

    def to_json(self) -> dict[str, Any]:
        models = "*" if self.models is None else sorted(self.models)
        scopes = [scope for scope in SCOPES if scope in self.scopes]
        return {"name": self.name, "sha256": self.digest.hex(), "scopes": scopes, "models": models}


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def grant_of(entry: object) -> Grant:
    """Raises TokenFileError."""
    if not isinstance(entry, dict) or not entry.keys() <= {"name", "sha256", "scopes", "models"}:
        raise TokenFileError("must be an object of name, sha256, scopes and models")
    digest: Any = entry.get("sha256")
    scopes: Any = entry.get("scopes")
    models: Any = entry.get("models")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise TokenFileError("sha256 must be 64 hexadecimal digits in small letters")
    if not _are_texts(scopes) or not scopes or not set(scopes) <= set(SCOPES):
        raise TokenFileError(f"scopes must be a list of some of {', '.join(SCOPES)}")
    if models != "*" and not _are_texts(models):
        raise TokenFileError('models must be a list of names, or "*" for all')
    of_models = None if models == "*" else frozenset(models)
    return Grant(bytes.fromhex(digest), str(entry.get("name", "")), frozenset(scopes), of_models)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def read_tokens(path: Path) -> dict[bytes, Grant]:
    """One JSON object a line; empty lines and those that begin with # do not count. Raises TokenFileError."""
    grants: dict[bytes, Grant] = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise TokenFileError(f"{path}: {failure}") from failure
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                grant = grant_of(json.loads(line))
            except ValueError as wrong:  # also of JSON, whose text does not repeat the line
                raise TokenFileError(f"{path}, line {number}: {wrong}") from wrong
            grants[grant.digest] = grant
    return grants


class TokenFile:
    """The grants of a file, read again within a second of its change. What cannot be read leaves those in
    force that were read before.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError."""
        self._path = path
        self._stamp = self._stamp_now()
        self._grants: Mapping[bytes, Grant] = read_tokens(path)
        self._looked = time.monotonic()
        if not self._grants:
            log.warning("%s holds no token: nobody is let in", path)

    def grant(self, token: bytes) -> Grant | None:
        """Of this token. Where the digests agree is no secret: who does not have a token cannot steer its
        digest. They are compared in constant time all the same.
        """
        if time.monotonic() - self._looked > LOOK_EVERY_SECONDS:
            self._look()
        digest = digest_of(token)
        grant = self._grants.get(digest)
        return grant if grant is not None and hmac.compare_digest(grant.digest, digest) else None

    def _look(self) -> None:
        self._looked = time.monotonic()
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._grants = read_tokens(self._path)
        except TokenFileError as wrong:
            log.error("the tokens stay as they were: %s", wrong)  # noqa: TRY400  the message says it all
        else:
            log.info("%s was read again: %d tokens", self._path, len(self._grants))

    def _stamp_now(self) -> tuple[int, ...]:
        """Also another where a symbolic link leads elsewhere, as Kubernetes changes its secrets."""
        try:
            told = self._path.stat()
        except OSError:
            return ()
        return told.st_ino, told.st_mtime_ns, told.st_size
