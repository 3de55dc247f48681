"""``[services.NAME]``: programs that run beside the commands of runs, such as a database. Environments list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from .environments import EnvironmentSettings, VariableName
from .triggers import TableName
from .variables import TABLE

PROXY_PORT = 61128
"""Where commands that may reach hosts find their proxy."""


def _port(port: int) -> int:
    if port == PROXY_PORT:
        raise ValueError(f"{port} is the port of the proxy of commands; choose another one")
    return port


class ServiceSettings(BaseModel):
    """One program. Each run, and each execution of a check, has its own, in a sandbox and with data of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str = Field(min_length=1)
    """A command line for bash that does not end, and so leaves no daemon in its place."""
    health: str = Field(min_length=1)
    """A command line for bash that succeeds once the service can be used."""
    port: Annotated[int, AfterValidator(_port)] | None = Field(default=None, ge=1024, le=65535)
    """Where it listens on 127.0.0.1, and where commands reach it. None: it has a socket in ``/opt/services/NAME``."""
    template: str = ""
    """A script that makes the data in its directory. It is run once, and each use begins with a copy of the data."""
    start_seconds: float = Field(default=60, gt=0)
    """How long it may take until ``health`` succeeds."""
    variables: dict[VariableName, str] = {}
    """Variables of all commands of the runs that have it, as ``DATABASE_URL``."""


def _with_services(
    environments: dict[str, EnvironmentSettings], info: ValidationInfo
) -> dict[str, EnvironmentSettings]:
    """Refuses an environment that lists a service without a table, or two at one port."""
    services: Mapping[str, ServiceSettings] | None = info.data.get("services")
    if services is None:  # refused itself
        return environments
    for environment, table in environments.items():
        ports = dict[int, str]()
        for name in table.services:
            if name not in services:
                known = f"there are {', '.join(services)}" if services else "there are none"
                raise ValueError(f"{environment} lists the service {name[:100]!r}, which has no table; {known}")
            port = services[name].port
            if port in ports:
                raise ValueError(f"{environment} lists {ports[port]} and {name}, which both have port {port}")
            ports |= {port: name} if port else {}
    return environments


ServiceTables = Annotated[dict[TableName, ServiceSettings], TABLE]
EnvironmentTables = Annotated[dict[TableName, EnvironmentSettings], AfterValidator(_with_services), TABLE]
"""Stands behind ``services`` in the settings, where it finds them."""
