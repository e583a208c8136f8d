"""Client of ftrl-service: `Client` and `AsyncClient`. A retry of theirs is never a second example."""

from __future__ import annotations

from ftrl_client.aio import AsyncClient
from ftrl_client.client import Client
from ftrl_client.errors import FtrlError, NoReply, Problem
from ftrl_client.messages import Example, Features, Instance, Label, Prediction, Update

__all__ = [
    "AsyncClient",
    "Client",
    "Example",
    "Features",
    "FtrlError",
    "Instance",
    "Label",
    "NoReply",
    "Prediction",
    "Problem",
    "Update",
]
