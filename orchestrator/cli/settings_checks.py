"""Checks of settings that a process makes where it uses them: here all of them, before one is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...shared.errors import Misconfigured
from .connect import check_script

if TYPE_CHECKING:
    from ...shared.settings import Settings


def mistakes(settings: Settings) -> Iterator[str]:
    """Yields what a service or a worker with these settings would refuse at its start."""
    for check in _checks(settings):
        try:
            check()
        except Misconfigured as error:
            yield str(error)


def _checks(settings: Settings) -> Iterator[Callable[[], object]]:
    from ...shared.redis_access import client_of
    from ...shared.settings.git_credentials import read_credentials
    from ..access_tokens import Tokens
    from ..sockets import scheme_and_host

    yield from (lambda each=each, name=name: each.secrets(name) for name, each in settings.triggers.items())
    yield from (lambda each=each, name=name: each.read(name) for name, each in settings.credentials.items())
    yield lambda: Tokens(settings)
    yield lambda: read_credentials(settings.git_credentials_file)
    yield lambda: check_script(settings.model)
    yield from (lambda path=path: _check_file(path, "policy", "DEPUTIZE_POLICY") for path in settings.policy)
    if settings.mcp_file:
        mcp_file = _located(settings.mcp_file)
        yield lambda: _check_file(mcp_file, "mcp_config", "DEPUTIZE_MCP_CONFIG")
    if settings.git_signing_key_file:
        key = settings.git_signing_key_file
        yield lambda: _check_file(key, "git_signing_key_file", "DEPUTIZE_GIT_SIGNING_KEY_FILE")
    if settings.redis_url is not None:
        yield lambda: client_of(settings.redis_url or "")
    if settings.url is not None:
        yield lambda: scheme_and_host(settings.url or "")


def _located(path: Path) -> Path:
    """Returns the file as a worker looks for it: here, then in the configuration folder."""
    from ...shared.settings import environment
    from ...shared.settings.files import configuration_folder

    here = Path.cwd() / path
    own = configuration_folder(environment()) / path
    return own if own.is_file() and not here.is_file() else here


def _check_file(path: Path, key: str, variable: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise Misconfigured(f"{key}: {path} cannot be read: {error.strerror}; correct {variable}") from None
