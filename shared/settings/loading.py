"""Reads the settings of a process from its files and environment variables, and passes them to child processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from ..errors import Misconfigured
from ..limits import Limits
from ..wire import explain
from . import files, variables
from .credentials import CredentialSettings, token_files
from .environments import secret_paths
from .fields import RedisSettings, SettingsFields, SpendSettings, ToolSettings, WebhookSettings
from .models import ModelSettings, read_key_file
from .sandbox import SandboxSettings, sandbox_table
from .triggers import TriggerSettings, secret_files
from .variables import (
    LIBRARY_VARIABLES,
    MODEL_VARIABLES,
    PREFIX,
    URL_VARIABLES,
    names_endpoint,
    passwords_in,
    secrets_of,
)

TABLES: Mapping[str, tuple[str, type[BaseModel]]] = {
    "caps": ("CAP_", Limits),
    "tools": ("TOOLS_", ToolSettings),
    "spend": ("SPEND_", SpendSettings),
    "sandbox": ("SANDBOX_", SandboxSettings),
    "redis": ("REDIS_", RedisSettings),
    "webhook": ("WEBHOOK_", WebhookSettings),
}
"""Settings that are tables of their own: what follows ``DEPUTIZE_`` in their variables, and their fields."""


def _variables() -> Iterator[tuple[str, str | None, str]]:
    """Yields each setting's variable, table and name."""
    for name in SettingsFields.model_fields:
        if name in TABLES:
            prefix, model = TABLES[name]
            for inner in model.model_fields:
                is_switch = (name, inner) == ("sandbox", "enabled")
                yield f"{PREFIX}{name.upper() if is_switch else prefix + inner.upper()}", name, inner
        elif name != "model_endpoint":
            yield f"{PREFIX}{name.upper()}", None, name


def _has_path(type_: Any) -> bool:
    return type_ is Path or any(map(_has_path, get_args(type_)))


def secret_variables() -> list[str]:
    """Returns the variables whose values are secret; each may be a file (``_FILE``) instead."""
    own = [
        variable
        for variable, (table, name) in VARIABLES.items()
        if "SecretStr" in str((TABLES[table][1] if table else SettingsFields).model_fields[name].annotation)
    ]
    return [*own, *(name for name in MODEL_VARIABLES if name not in URL_VARIABLES)]


VARIABLES = {variable: (table, name) for variable, table, name in _variables()}
_REMOVED = {"workspace_max_bytes": "sandbox.disk_bytes"}
"""Settings that are another one now."""
_BY_PLACE = {f"{table}/{name}" if table else name: variable for variable, (table, name) in VARIABLES.items()}
_PATHS = {
    name
    for model in (SettingsFields, ToolSettings, SandboxSettings, RedisSettings, TriggerSettings, CredentialSettings)
    for name, field in model.model_fields.items()
    if _has_path(field.annotation)
}
"""Relative ones are relative to the file that contains them."""


class Settings(SettingsFields):
    """One process's settings."""

    @property
    def workspaces(self) -> Path:
        return self.workspace_root or self.home / "workspaces"

    @property
    def setups(self) -> Path:
        """Where results of set-up commands are kept: like workspaces on a disk that programs may be run from, and that
        all workers may share."""
        return self.workspaces / "setup"

    @property
    def prepared(self) -> Path:
        """Where prepared environments are kept: on the disk of the workspaces, for all workers that share it."""
        return self.workspaces / "environments"

    @property
    def repositories(self) -> Path:
        """Where clones of git repositories are kept: on the disk of the workspaces that are copied from them."""
        return self.workspaces / "repositories"

    @property
    def proof_key_folder(self) -> Path:
        return self.proof_keys or self.home / "proof-keys"

    @property
    def private(self) -> tuple[Path, ...]:
        """What no sandbox shows, and no workspace has a copy of: the state of this service, and files of secrets."""
        own = self.git_credentials_file, self.git_signing_key_file, self.tokens_file
        of_models = (Path(file) for table in self.models.values() for file in table.files)
        of_tables = *secret_files(self.triggers), *secret_paths(self.environments), *token_files(self.credentials)
        return (self.home, self.workspaces, self.proof_key_folder, *filter(None, own), *of_models, *of_tables)

    @property
    def secrets(self) -> list[str]:
        """Values that must not leave the process: they are masked in events, results and logs."""
        set_here = filter(None, (self.token, self.tools.search_key, self.redis.password))
        own = [secret.get_secret_value() for secret in set_here]
        own += [secret.get_secret_value().partition("whsec_")[2] for secret in self.webhook.secrets]
        keys = [*secrets_of(self.endpoint_variables()), *self._keys_in_files(), *self._tokens_of_hosts()]
        return [*keys, *own, *passwords_in(self.redis_url), *self._git_secrets(), *self._proof_secrets()]

    def _keys_in_files(self) -> list[str]:
        """Without a readable file there is none: then nothing can use it either."""
        keys = list[str]()
        for path in (path for table in self.models.values() for path in table.files):
            with suppress(Misconfigured):
                keys.append(read_key_file(path))
        return keys

    def _tokens_of_hosts(self) -> list[str]:
        found = list[str]()
        for name, table in self.credentials.items():
            with suppress(Misconfigured):
                found += table.read(name)[2]
        return found

    def _git_secrets(self) -> list[str]:
        """Without a readable file there are none: then nothing can use them either."""
        if self.git_credentials_file is None:
            return []
        from .git_credentials import read_credentials

        with suppress(Misconfigured):
            return [secret for each in read_credentials(self.git_credentials_file) for secret in each.secrets]
        return []

    def _proof_secrets(self) -> list[str]:
        """Returns the line of each private key; one that cannot be read cannot be used either."""
        found = list[str]()
        for path in self.proof_key_folder.glob("*.pem"):
            with suppress(OSError, ValueError):
                found += [line for line in path.read_text("ascii").splitlines() if not line.startswith("-")]
        return found

    @property
    def asks_for_token(self) -> bool:
        """Whether the API answers only to callers with a token."""
        return self.token is not None or self.tokens_file is not None

    @property
    def has_model_endpoint(self) -> bool:
        return names_endpoint(self.model_endpoint)

    def table_of(self, model: str | None) -> ModelSettings:
        """Returns the table of the model that a request names, None being the configured one; else an empty one."""
        return self.models.get(model or self.model) or ModelSettings()

    def reaches(self, model: str | None = None) -> bool:
        """Returns whether a model has an endpoint, or needs none; by default the configured one."""
        is_script = (model or self.model).startswith("scripted")
        return is_script or self.table_of(model).is_own or self.has_model_endpoint

    @property
    def mcp_file(self) -> Path | None:
        return self.mcp_config or self.tools.mcp_config_path

    @property
    def skills(self) -> Path | None:
        return self.skills_dir or self.tools.skills_dir

    @classmethod
    def load(cls, config: Path | None = None, environ: Mapping[str, str] | None = None, **override: Any) -> Self:
        """Reads file and environment; ``override`` overrides both. Raises Misconfigured with the setting's name."""
        if environ is None:
            variables.unset_blank()
            environ = variables.environment()
        variables.warn_of_unknown(environ, VARIABLES)
        values = files.read(config, environ, _PATHS)
        variables.refuse_removed(environ, values, _REMOVED)
        if "sandbox" in values:
            values["sandbox"] = sandbox_table(values["sandbox"])
        for variable, (table, name) in VARIABLES.items():
            if (text := variables.read(variable, environ)) is not None:
                holder = values.setdefault(table, {}) if table else values
                if isinstance(holder, dict):  # a value that is not a table is refused below
                    holder[name] = text
        endpoint = {name: variables.read(name, environ) for name in MODEL_VARIABLES}
        values["model_endpoint"] = {name: text for name, text in endpoint.items() if text is not None}
        values |= {name: value for name, value in override.items() if value is not None}
        try:
            return cls.model_validate(values)._with_keys(environ)
        except ValidationError as error:
            mistakes = [(m["pointer"].lstrip("/"), m["detail"]) for m in explain(error, cls)]
            sentences = "; ".join(f"{name}: {detail}" for name, detail in mistakes)
            # the variable of ``tools/enable_bash``, or that of ``prices`` for ``prices/x/input``
            keys = [name.split("/") for name, _ in mistakes]
            known = (_BY_PLACE.get("/".join(each[:2])) or _BY_PLACE.get(each[0]) for each in keys)
            file = files.in_use(config, environ) or "deputize.toml"
            places = dict.fromkeys([str(file), *(variables.used(name, environ) for name in known if name)])
            raise Misconfigured(f"settings: {sentences}; correct {' or '.join(places)}") from None

    def _with_keys(self, environ: Mapping[str, str]) -> Self:
        """Returns the settings with the variables that hold keys of ``models``, as far as they are set."""
        tables = self.models.values()
        names = {name for table in tables for name in table.variables}
        if any(table.platform in ("aws", "bedrock") for table in tables):
            names |= {*LIBRARY_VARIABLES}
        found = {name: SecretStr(text) for name in sorted(names) if (text := variables.read(name, environ))}
        return self.model_copy(update={"model_endpoint": self.model_endpoint | found}) if found else self

    def child_environment(self) -> dict[str, str]:
        """Returns the environment for this project's own child processes: all settings but the model's endpoint.

        They read no configuration file: its values are passed as variables.
        """
        known = {*MODEL_VARIABLES, *self.model_endpoint}
        keys = {name for each in known for name in (each, f"{each}_FILE")}
        passed = {name: text for name, text in variables.environment().items() if name not in keys}
        passed[f"{PREFIX}CONFIG"] = os.devnull
        for variable, (table, name) in VARIABLES.items():
            text = variables.written(getattr(getattr(self, table) if table else self, name))
            passed |= {} if text is None else {variable: text}
        return passed

    def endpoint_variables(self) -> dict[str, str]:
        """Returns the model endpoint's variables, for workers only."""
        return {name: secret.get_secret_value() for name, secret in self.model_endpoint.items()}
