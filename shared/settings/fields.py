"""All settings, with their defaults. A new setting needs a field here and, where it is of a tool, a row in a README.

``DEPUTIZE_`` + name, or a key of ``deputize.toml``; the environment overrides the file, the file the default. The
fields of ``ToolSettings`` are ``DEPUTIZE_TOOLS_`` + name, or keys of its ``[tools]`` table; those of
``SandboxSettings`` (in ``sandbox.py``) are ``DEPUTIZE_SANDBOX_`` + name, or keys of ``[sandbox]``,
and so on for the other tables.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..limits import Limits
from ..log import Format
from ..request_options import ApprovalMode, Effort
from ..webhooks import Webhook, parsed_secret, wrong_url
from . import variables
from .credentials import CredentialTables
from .models import ModelPrice, ModelSettings, check_name
from .sandbox import SandboxSettings, sandbox_table
from .schedules import ScheduleSettings
from .services import EnvironmentTables, ServiceTables
from .triggers import TableName, TriggerSettings
from .variables import COMMA_SEPARATED, PATHS, TABLE, AbsolutePath, FilePath, upper_case

CAPS = Limits(max_turns=200, max_tool_calls=1000, timeout_seconds=24 * 3600)
Switch = bool | None
"""True: in every run's kit. False: not offered by this worker. None: by name, and in the kit if the default has it."""
_GIT_HOST = re.compile(
    r"(?:http://)?(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.I
)
_WEAKENING = {"ssl_cert_reqs", "ssl_check_hostname"}


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolSettings(_Table):
    """The tools that a worker offers, and the settings of some of them."""

    enable_file_tools: Switch = None
    """read_file, write_file, edit_file; true puts list_directory and read_many_files into every kit too."""
    enable_search: Switch = None
    """glob and grep."""
    enable_bash: Switch = None
    """bash, bash_output and bash_kill together."""
    enable_web: Switch = None
    """web_fetch, and web_search where a provider is configured."""
    enable_skills: Switch = None
    """get_skill, where skills exist."""
    enable_mcp: Switch = None
    """The tools of the servers in mcp.json."""
    enable_note: Switch = None
    """record_note and recall_notes."""
    enable_todos: Switch = None
    enable_artifacts: Switch = None
    """create_artifact, read_artifact, update_artifact and rewrite_artifact."""
    enable_subagent: Switch = None
    """call_subagent."""
    enable_discovered: Switch = None
    """The tools that the discovery command declares."""
    instruction_files: Annotated[list[str], COMMA_SEPARATED] = ["AGENTS.md", "CLAUDE.md", "GEMINI.md"]
    """The names of files with a project's instructions; in each directory the first one counts. Empty: none is read."""

    skills_dir: FilePath | None = None
    """Where skills are; ``skills`` where it is unset and enable_skills is true. A relative path is looked for below
    the working directory, below ``home`` and below the package ``worker``."""
    mcp_config_path: FilePath | None = None
    mcp_connect_seconds: float = Field(default=15, gt=0)
    """How long a run waits for its MCP servers, all of them together, before it goes on without the late ones."""
    discovery_command: str | None = None
    """Command that prints JSON tool declarations; run in the sandbox."""
    call_command: str | None = None
    """Command that runs a discovered tool's call: its name is the last argument, its arguments are JSON on stdin."""
    max_depth: int = Field(default=3, ge=0, le=3)
    """Maximum nesting depth of delegations; 0 disables call_subagent."""

    allowed_hosts: Annotated[list[str], COMMA_SEPARATED] = []
    """Hosts or patterns (``*.example.org``) that web_fetch may access without approval."""
    private_hosts: Annotated[list[str], COMMA_SEPARATED] = []
    """Hosts (``name`` or ``name:port``) that may lie on private addresses, such as a company's own wiki."""
    user_agent: variables.AsciiInHeader = "deputize/0.1"
    """The User-Agent of web_fetch: name/version."""
    search_provider: Literal["searxng", "brave"] | None = None
    """Unset: there is no web_search."""
    search_url: str | None = None
    """The provider's address; needed for searxng."""
    search_key: variables.SecretInHeader | None = None

    @model_validator(mode="after")
    def _callable(self) -> Self:
        if self.discovery_command and not self.call_command:
            raise ValueError("discovery_command needs call_command: without it nothing carries out discovered tools")
        return self


_Usd = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]


class SpendWindows(_Table):
    """Caps on money, in US dollars, by the window in which it is spent. A window's days (UTC) include today."""

    daily_usd: _Usd = None
    """In a day."""
    weekly_usd: _Usd = None
    """In 7 days."""
    four_weeks_usd: _Usd = None
    """In 28 days."""
    total_usd: _Usd = None
    """In all time since it is counted."""


def _a_day(given: Any) -> Any:
    """A number alone caps a day."""
    return {"daily_usd": given} if isinstance(given, int | float | str) else given


class SpendSettings(SpendWindows):
    """Caps on what the fleet's model calls cost, for all delegations together and by label.

    Before each call its highest cost is reserved. What would exceed a cap ends its run, and nothing more is accepted.
    """

    per_label: Annotated[dict[str, Annotated[SpendWindows, BeforeValidator(_a_day)]], TABLE] = {}
    """By label: ``"team:docs" = 5`` caps a day of that value, ``team = {weekly_usd = 20}`` a week of each value."""


def _some_limits(value: dict[str, Any]) -> dict[str, Any]:
    """Returns those limits that are given, each valid; a default must not hide that one was left out."""
    return Limits.model_validate(value).model_dump(exclude_unset=True)


class AgentSettings(_Table):
    """A named agent: what a request that names it, or a call of call_subagent, gets where it sets nothing itself."""

    description: str = Field(default="", max_length=1000)
    """What it is for; models that may call it as a subagent read this."""
    system_prompt: str | None = None
    """Who it is and how it works. What every worker must know (workspace, sandbox, report) follows it."""
    model: str | None = None
    effort: Effort | None = None
    economy: bool | None = None
    tools: list[str] | None = None
    limits: Annotated[dict[str, Any], AfterValidator(_some_limits)] = {}
    approval_mode: ApprovalMode | None = None
    """As a subagent it gets the stricter one of this and its parent's."""
    sandbox: str | None = None
    """A profile of the sandbox, by name. As a subagent it gets of each setting the stricter one of its own and its
    parent's; without a profile it has its parent's sandbox."""


class RedisSettings(_Table):
    """Parts of the connection to Redis that are better not in its address. They override those of ``redis_url``."""

    user: str | None = None
    """A user of its access control list; ``shared/redis_user.acl`` has the least rights that it needs."""
    password: SecretStr | None = None
    ca_file: AbsolutePath | None = None
    """The certificates (PEM) that vouch for the server of a ``rediss://`` address; unset: those of the system."""
    cert_file: AbsolutePath | None = None
    """The certificate (PEM) that this side shows to a server that wants one."""
    key_file: AbsolutePath | None = None
    """Its key, if that is not in the same file."""
    replicas: int = Field(default=0, ge=0, le=9)
    """How many must have a write before a caller gets its reply, or something is done that cannot be undone."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs cert_file, the certificate that it belongs to")
        if self.user and not self.password:
            raise ValueError("user needs password")
        for path in (self.ca_file, self.cert_file, self.key_file):
            if path and not os.access(path, os.R_OK):
                raise ValueError(f"the file {path} cannot be read")
        return self

    @property
    def is_set(self) -> bool:
        return self != RedisSettings()

    def address(self, url: str) -> str:
        """Returns the URL with these parts in it. Raises ValueError if they do not fit its scheme."""
        parts = urlsplit(url)
        if weak := _WEAKENING & dict(parse_qsl(parts.query)).keys():
            raise ValueError(f"{min(weak)}: certificates are always verified; redis.ca_file names those that count")
        files = {"ssl_ca_certs": self.ca_file, "ssl_certfile": self.cert_file, "ssl_keyfile": self.key_file}
        given = {name: str(path) for name, path in files.items() if path}
        if given and parts.scheme != "rediss":
            raise ValueError(f"{parts.scheme}:// is without TLS, so redis.ca_file and cert_file need rediss://")
        if not self.is_set:
            return url
        netloc = self._credentials(parts.netloc)
        query = urlencode({**dict(parse_qsl(parts.query)), **given}) if given else parts.query
        return f"{parts.scheme}://{netloc}{parts.path}{f'?{query}' if query else ''}"  # geturl() is "unix:/x.sock"

    def _credentials(self, netloc: str) -> str:
        before, _, host = netloc.rpartition("@")
        user, _, password = before.partition(":")
        user = unquote(user) if self.user is None else self.user
        password = unquote(password) if self.password is None else self.password.get_secret_value()
        return f"{quote(user, safe='')}:{quote(password, safe='')}@{host}" if user or password else host


def _webhook_secret(secret: SecretStr) -> SecretStr:
    parsed_secret(secret.get_secret_value())
    return secret


class WebhookSettings(_Table):
    """Webhooks of requests, and one for all. The service and all workers need the same settings."""

    secrets: Annotated[list[Annotated[SecretStr, AfterValidator(_webhook_secret)]], COMMA_SEPARATED] = []
    """``whsec_`` and the base64 of 24 to 64 random bytes: what signs notifications; without any, no request may have a
    webhook. Each of several signs: receivers accept old and new ones while they are exchanged. ``NAME=whsec_…`` is for
    requests that name it as ``secretName``."""
    hosts: Annotated[list[str], COMMA_SEPARATED] = []
    """Hosts (``name``, or ``name:port`` for an unusual port) that may have private addresses and be without TLS."""
    url: str | None = None
    """What is notified of delegations whose request has no webhook, but not of those that runs submit."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.default and (reason := self.refusal(self.default)):
            raise ValueError(reason)
        return self

    @property
    def default(self) -> Webhook | None:
        """What is notified where a request names nothing."""
        return Webhook(url=self.url) if self.url else None

    def keys(self, name: str | None) -> list[bytes]:
        """Returns the keys of the secrets with this name, or of those without one."""
        parsed = (parsed_secret(secret.get_secret_value()) for secret in self.secrets)
        return [key for called, key in parsed if called == name]

    def refusal(self, webhook: Webhook) -> str | None:
        """Returns why nothing can be sent to a webhook, or None."""
        if not self.keys(webhook.secret_name):
            which = f"secret is named {webhook.secret_name!r}" if webhook.secret_name else "default secret is set"
            return f"no {which}: set DEPUTIZE_WEBHOOK_SECRETS ([NAME=]whsec_…) for the service and all workers"
        return wrong_url(webhook.url, self.hosts)


def _script_located(model: str) -> str:
    """Returns the model with the whole path of its script: a worker runs in another folder."""
    name, colon, path = model.partition(":")
    if name != "scripted" or not path or Path(path).is_absolute():
        return model
    return f"{name}{colon}{Path(path).expanduser().absolute()}"


class SettingsFields(_Table):
    """Times are in seconds, sizes in bytes."""

    model_config = ConfigDict(validate_default=True)

    redis: RedisSettings = RedisSettings()
    """Its user and its certificates."""
    redis_url: str | None = Field(default=None, repr=False)
    """``redis://``, ``rediss://`` (TLS), ``unix://`` or ``redis+sentinel://``; unset: the embedded server."""
    host: str = "127.0.0.1"
    port: int = Field(default=8642, ge=0, le=65535)
    home: AbsolutePath = Path("~/.local/state/deputize")
    url: str | None = None
    token: variables.TokenInHeader | None = None
    """The token named ``default``, with all scopes; also the one that a client sends."""
    tokens_file: AbsolutePath | None = None
    """A TOML file of further tokens that the API accepts, each with a name and scopes; see ``deputize token new``."""
    no_token: bool = False
    """If neither is set: true grants access to every user and program of this machine, on a loopback address only."""
    model: Annotated[str, AfterValidator(_script_located)] = "claude-sonnet-5-5"
    """A model's name, that of a table of ``models``, or ``scripted`` / ``scripted:FILE`` for a script's model."""
    model_retry_seconds: float | None = Field(default=None, ge=0)
    """How long retryable failures of the model's endpoint are waited out (429, 5xx, cut streams, no connection).

    Unset: as long as the run's own time allows (``timeoutSeconds``, which goes on meanwhile). A number: from the first
    failure of a turn on, and never longer than the run's own time; 0 asks once.
    """
    cache_diagnostics: bool | None = None
    """Whether the model's endpoint is asked why its prompt cache was missed; ``show --usage`` has the answers.
    Unset: only where its host is api.anthropic.com, because other endpoints may refuse the field."""
    scripts: AbsolutePath | None = None
    """A folder of scripts that requests may name as ``scripted:FILE``. Unset: only the one that ``model`` names."""
    context_tokens: int | None = Field(default=None, ge=1000)
    """The model's context window, if it is not the one known for its name: an endpoint may offer less."""
    max_output_tokens: int = Field(default=16_000, ge=256)
    """The longest reply that is asked for, in tokens; a model's smaller maximum is used once its endpoint names it."""
    workspace_root: AbsolutePath | None = None
    """Where workspaces live; default: ``workspaces`` below ``home``."""
    workspace_sources: Annotated[list[Path] | None, COMMA_SEPARATED] = None
    """Roots from which directory workspaces may be copied. Unset: any with the embedded Redis, else none."""
    snapshot_store: str | None = Field(default=None, pattern="^[a-z0-9]+://")
    """Where workers also keep the snapshots of runs, as ``s3://BUCKET/PREFIX``, so that a run goes on where another
    machine's disk is lost. Credentials are those of the variables ``AWS_…``."""
    git_hosts: Annotated[list[str], COMMA_SEPARATED] = []
    """Hosts (``name`` or ``name:port``) that git workspaces may be cloned from, and branches delivered to, by https.
    A host of this machine with its port may be reached without TLS, and any host that is written ``http://name:port``."""
    git_credentials_file: AbsolutePath | None = None
    """A user and token per git host, in the format of git's store: ``https://USER:TOKEN@HOST``, one per line."""
    git_author: str = Field(default="deputize <deputize@localhost>", pattern=r"^[^<>\x00-\x1f]+ <[^<>\s]+>$")
    """Who commits what is delivered: ``NAME <ADDRESS>``. The service and all workers need the same one."""
    git_signing_key_file: AbsolutePath | None = None
    """The private key that signs delivered commits, of OpenSSH or of GnuPG, without a passphrase. The service and all
    workers need the same one. Unset: commits are not signed."""
    github_api_url: str = Field(default="https://api.github.com", pattern=r"^https?://\S+$")
    """GitHub's API, for pull requests: its own for github.com, or ``https://HOST/api/v3`` for an Enterprise server."""
    gitlab_api_url: str = Field(default="https://gitlab.com/api/v4", pattern=r"^https?://\S+$")
    """GitLab's API, for merge requests: that of gitlab.com, or ``https://HOST/api/v4`` for another server."""
    gitea_api_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """The API of Gitea or Forgejo, for pull requests: ``https://HOST/api/v1``."""
    proof_keys: AbsolutePath | None = None
    """The folder of the keys that sign proofs of verified results, which ``deputize keys new`` makes; default:
    ``proof-keys`` below ``home``. All workers need the same ones."""
    webhook: WebhookSettings = WebhookSettings()
    """What notifies the callers of delegations."""
    max_streams: int = Field(default=5000, ge=1)
    """How many event streams, long polls and waiting MCP calls the API serves at a time, and how many MCP sessions."""
    max_streams_per_caller: int = Field(default=1000, ge=1)
    """How many of them one caller may have: a token, or an address where no token is asked for."""
    mcp_session_seconds: float = Field(default=1800, gt=0)
    """How long a session of `/mcp` lasts without a request."""
    body_seconds: float = Field(default=20, gt=0)
    """How long the API waits for a small request's body, and for the next chunk of a large one."""
    workspace_kept_bytes: int = Field(default=32 * 1024**3, ge=0)
    """How much the files of finished delegations may take below ``workspace_root``: more than that, and those that
    ended first lose theirs before their time. The last one keeps its files in any case."""
    upload_max_bytes: int = Field(default=256 * 1024**2, ge=1)
    """How large an archive may be that is sent by `PUT /v1/uploads`."""
    upload_kept_bytes: int = Field(default=4 * 1024**3, ge=1)
    """How much all uploads of one caller, a token of the tokens file or all others, may take together."""
    upload_retention_seconds: int = Field(default=24 * 3600, ge=60)
    """How long an upload is kept after a request named it or it was sent last; longer while a delegation needs it."""
    concurrency: int = Field(default=200, ge=1, le=20000)
    queues: Annotated[list[str], COMMA_SEPARATED] = ["deputize"]
    """What a worker serves. The service fills one queue: only another Redis server makes another fleet."""
    mcp_config: FilePath | None = None
    """Shorter for ``tools.mcp_config_path``."""
    skills_dir: FilePath | None = None
    """Shorter for ``tools.skills_dir``."""
    policy: Annotated[tuple[AbsolutePath, ...], PATHS] = ()
    """Files of policy rules, read when a worker starts. The key of a file is a list, or one path."""
    permission_timeout_seconds: float = Field(default=300, ge=0, allow_inf_nan=False)
    """How long a call that needs approval waits for a person's answer before it is denied; 0: it is denied at once."""
    lease_seconds: float = Field(default=10, ge=1)
    claim_seconds: float = Field(default=30, gt=0)
    """How long an accepted delegation may wait for its first claim before another ticket is sent; a process that a
    run has of its own is ended where it does not claim the run in three times as long."""
    retention_seconds: int = Field(default=7 * 24 * 3600, ge=1)
    workspace_retention_seconds: int = Field(default=24 * 3600, ge=0)
    """How long the files of a finished delegation are kept; its patch lives as long as its record."""
    shutdown_seconds: float = Field(default=10, ge=0)
    """How long a reply or call may go on when its worker gets SIGTERM and hands its runs over."""
    caps: Limits = CAPS
    """The server's caps: a request's limits are lowered to these. What a file or ``CAP_`` variable leaves out stays."""
    tools: ToolSettings = ToolSettings()
    """The tools that this worker offers."""
    spend: SpendSettings = SpendSettings()
    """Caps on money. The service and all workers need the same ones."""
    prices: Annotated[dict[str, ModelPrice], TABLE] = {}
    """Prices of models, by name, where they are unknown or others than those of the provider's list. A variable holds
    JSON: ``{"my-model": {"input": 1, "output": 5}}``; ``PRICES_FILE`` names a file of it."""
    models: Annotated[dict[str, ModelSettings], TABLE] = {}
    """Further models, by the names of requests; a table ``models.NAME`` each, or JSON. All processes need the same."""
    loop_detection: bool = True
    """Whether a run that repeats itself is stopped."""
    max_attempts: int = Field(default=3, ge=1)
    """After so many workers lost in a row, with no turn completed in between, a delegation ends as ``worker_lost``.
    A worker that is stopped in good order is not lost."""
    local: bool = False
    """Workers share this machine with the service (set by the embedded stack): paths are checked on acceptance."""
    temporary: bool = False
    """This machine's stack lives only as long as the commands that use it (set by the stack itself)."""
    stack_since: str | None = None
    """The smallest id of the embedded stack's time, set by the stack itself: what is older may be paused."""
    sandbox: Annotated[SandboxSettings, BeforeValidator(sandbox_table)] = SandboxSettings()
    """The sandbox of commands; a plain value is its ``enabled``."""
    agents: Annotated[dict[str, AgentSettings], TABLE] = {}
    """Named agents; the service and all workers need the same ones. A variable holds JSON, as that of ``prices``."""
    triggers: Annotated[dict[TableName, TriggerSettings], TABLE] = {}
    """What begins work by `POST /v1/triggers/NAME`; a table ``triggers.NAME`` each. A variable holds JSON."""
    schedules: Annotated[dict[TableName, ScheduleSettings], TABLE] = {}
    """What the service begins at certain times; a table ``schedules.NAME`` each. A variable holds JSON."""
    services: ServiceTables = {}
    """What can run beside the commands of runs; a table ``services.NAME`` each. A variable holds JSON."""
    environments: EnvironmentTables = {}
    """What is prepared for the commands of runs; a table ``environments.NAME`` each. A variable holds JSON."""
    credentials: CredentialTables = {}
    """What commands get for a host without seeing it; a table ``credentials.NAME`` each. A variable holds JSON."""
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(upper_case)] = "INFO"
    log_format: Format = "auto"
    """``auto``: lines for people on a terminal, else JSON. ``json`` and ``text``: that everywhere."""
    model_endpoint: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """The values of MODEL_VARIABLES and of those that keys of ``models`` name, for model clients and for masking."""

    @field_validator("git_hosts")
    @classmethod
    def _check_git_hosts(cls, value: list[str]) -> list[str]:
        for number, each in enumerate(value, 1):
            found = _GIT_HOST.fullmatch(each)
            if found is None or int(found["port"] or 1) > 65535:
                raise ValueError(f"entry {number} is not a host: give NAME, NAME:PORT, or http://NAME:PORT without TLS")
        return value

    @field_validator("redis_url")
    @classmethod
    def _whole_address(cls, url: str | None, info: ValidationInfo) -> str | None:
        parts: RedisSettings | None = info.data.get("redis")
        if url is None and parts and parts.is_set:
            raise ValueError("is not set, so the settings of the table redis are about no server")
        return parts.address(url) if url is not None and parts else url

    @field_validator("agents")
    @classmethod
    def _in_known_profiles(cls, agents: dict[str, AgentSettings], info: ValidationInfo) -> dict[str, AgentSettings]:
        sandbox: SandboxSettings | None = info.data.get("sandbox")
        for name, agent in agents.items():
            if sandbox and (reason := sandbox.unknown_profile(agent.sandbox)):
                raise ValueError(f"the agent {name!r}: {reason}")
        return agents

    @field_validator("models")
    @classmethod
    def _with_usable_names(cls, models: dict[str, ModelSettings]) -> dict[str, ModelSettings]:
        for name in models:
            check_name(name)
        return models

    @field_validator("caps", mode="before")
    @classmethod
    def _filled(cls, value: Any) -> Any:
        return {**CAPS.model_dump(), **value} if isinstance(value, dict) else value
