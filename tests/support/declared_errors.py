"""The errors that the service declares."""

from __future__ import annotations

import importlib
import pkgutil

import service
from service.errors import Conflict, NotFound, ServiceError, Unavailable

BASES = (ServiceError, NotFound, Conflict, Unavailable)
"""They give a status to others and are not raised themselves."""


def service_errors() -> list[type[ServiceError]]:
    """Every class of ServiceError in any module of the service, but for BASES."""
    for module in pkgutil.walk_packages(service.__path__, "service."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = _with_subclasses(ServiceError)
    return [error for error in found if error not in BASES and error.__module__.startswith("service.")]


def _with_subclasses(error: type[ServiceError]) -> list[type[ServiceError]]:
    return [error, *(found for below in error.__subclasses__() for found in _with_subclasses(below))]
