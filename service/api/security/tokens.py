"""Bearer tokens: their grants, and the file that lists them by digest.

A token is 256 random bits, which cannot be guessed however fast a digest is computed. One round of SHA-256
therefore protects it as well as a password hash, which exists to slow down the guessing of passwords that
people choose, and would cost milliseconds at every request.
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
RELOAD_SECONDS = 1.0
_DIGEST = re.compile(r"[0-9a-f]{64}")


class TokenFileError(ValueError):
    """The file cannot be used; the text names the line and the reason, and contains no token."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Permissions of a token. `models`: None stands for all. The scope `admin` includes the others."""

    digest: bytes
    name: str
    scopes: frozenset[str]
    models: frozenset[str] | None

    def allows(self, scope: str | None, model: str | None) -> bool:
        """`scope` None accepts any scope. `model` None asks for all models."""
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
        raise TokenFileError("sha256 must be 64 lower-case hexadecimal digits")
    if not _are_texts(scopes) or not scopes or not set(scopes) <= set(SCOPES):
        raise TokenFileError(f"scopes must be a list of some of {', '.join(SCOPES)}")
    if models != "*" and not _are_texts(models):
        raise TokenFileError('models must be a list of names, or "*" for all')
    of_models = None if models == "*" else frozenset(models)
    return Grant(bytes.fromhex(digest), str(entry.get("name", "")), frozenset(scopes), of_models)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def read_tokens(path: Path) -> dict[bytes, Grant]:
    """Read one JSON object a line, skipping empty lines and comments (#). Raises TokenFileError."""
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
    """The grants of a file, reread within a second of a change. A file that cannot be read leaves the grants
    as they were.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError."""
        self._path = path
        self._stamp = self._stamp_now()
        self._grants: Mapping[bytes, Grant] = read_tokens(path)
        self._checked = time.monotonic()
        if not self._grants:
            log.warning("%s contains no token: every call that needs one is refused", path)

    def grant(self, token: bytes) -> Grant | None:
        """Return the grant of a token, None for an unknown one.

        The time of the look-up reveals nothing of use: a caller without the token cannot choose its digest.
        The digests are compared in constant time all the same.
        """
        if time.monotonic() - self._checked > RELOAD_SECONDS:
            self._reload_if_changed()
        digest = digest_of(token)
        grant = self._grants.get(digest)
        return grant if grant is not None and hmac.compare_digest(grant.digest, digest) else None

    def _reload_if_changed(self) -> None:
        self._checked = time.monotonic()
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._grants = read_tokens(self._path)
        except TokenFileError as wrong:
            log.error("tokens not reloaded: %s", wrong)  # noqa: TRY400  the message says it all
        else:
            log.info("%s reloaded: %d tokens", self._path, len(self._grants))

    def _stamp_now(self) -> tuple[int, ...]:
        """Identify the file; a symbolic link that is repointed, as in Kubernetes secrets, changes it, too."""
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size
