"""Static files of a page, read once and served with the headers that a page needs."""

from __future__ import annotations

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    # Kept by the browser and asked about each time, so that after an upgrade all files are of one version.
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
PAGE_HEADERS = {
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class Asset(NamedTuple):
    content: bytes
    etag: str
    media_type: str


class Assets:
    """All files of `static/` in a package that a browser is to have, by their path there.

    `images`: where the page may have images from; everything else comes from this service.
    """

    def __init__(self, package: str, images: str = "'self'") -> None:
        self._assets = dict(_files(resources.files(package).joinpath("static")))
        self._images = images

    def page(self, request: Request, name: str = PAGE, styles: str = "'self'") -> Response:
        """`styles`: what styles the page may have, as its policy names them."""
        policy = {"content-security-policy": _policy(self._images, styles)}
        return self._reply(request, name, PAGE_HEADERS | policy)

    def file(self, request: Request) -> Response:
        """Raises HTTPException (404)."""
        return self._reply(request, request.path_params["file"], {})

    def _reply(self, request: Request, path: str, further: dict[str, str]) -> Response:
        asset = self._assets.get(path)
        if asset is None:
            raise HTTPException(404)
        headers = HEADERS | further | {"etag": asset.etag}
        if asset.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.media_type, headers=headers)


def _policy(images: str, styles: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            f"style-src {styles}",
            f"img-src {images}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _files(directory: Traversable, prefix: str = "") -> list[tuple[str, Asset]]:
    found = []
    for entry in directory.iterdir():
        path = prefix + entry.name
        ending = entry.name[entry.name.rfind(".") :]
        if entry.is_dir():
            found += _files(entry, f"{path}/")
        elif ending in TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            found.append((path, Asset(content, etag, TYPES[ending])))
    return found
