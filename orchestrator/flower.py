"""Flower, Celery's monitoring page, as a program of the stack."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from .child import ChildProgram, python
from .sockets import free_port


class Flower:
    """Flower, read-only, on loopback and with a password.

    Without a password its API must be unauthenticated, and then it allows every origin by CORS.
    """

    def __init__(self) -> None:
        self._port = free_port()
        self._user = f"deputize:{secrets.token_urlsafe(16)}"
        self.url = f"http://{self._user}@127.0.0.1:{self._port}"

    def program(self, environment: Mapping[str, str], home: Path) -> ChildProgram:
        options = {
            "address": "127.0.0.1",
            "port": self._port,
            "read-only": "true",
            "persistent": "true",
            "db": home / "flower.db",
            "state-save-interval": 10_000,
            "tasks-columns": "name,uuid,state,args,result,received,started,runtime,worker",
            "natural-time": "true",
            "purge-offline-workers": 600,
            # Delegations take minutes: Prometheus' default buckets end at ten seconds.
            "task-runtime-metric-buckets": "1,5,15,60,300,900,3600,14400",
        }
        command = python("celery", "--app", "deputize.shared.queue:app", "flower")
        # Flower needs neither the service's token nor a key.
        keyless = {name: text for name, text in environment.items() if not name.startswith("DEPUTIZE_TOKEN")}
        return ChildProgram(
            "flower",
            [*command, *(f"--{name}={value}" for name, value in options.items())],
            keyless | {"FLOWER_BASIC_AUTH": self._user},  # other users of this machine could read an argument
        )
