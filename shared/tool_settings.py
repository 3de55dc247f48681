"""The ``[tools]`` table of the settings: the tools that a worker offers, and the settings of some of them.

A switch is true (in every run's kit), false (not offered by this worker) or unset: available by name, and in the kit
only if it is in the default kit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

Switch = bool | None


class ToolSettings(BaseModel):
    """Each is also an environment variable: ``DEPUTIZE_TOOLS_`` + name. Lists are separated by commas there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    skills_dir: Path | None = None
    """Where skills are; ``skills`` where it is unset and enable_skills is true. A relative path is looked for below
    the working directory, below ``home`` and below the package ``worker``."""
    mcp_config_path: Path | None = None
    mcp_connect_seconds: float = Field(default=15, gt=0)
    """How long a run waits for its MCP servers, all of them together, before it goes on without the late ones."""
    discovery_command: str | None = None
    """Command that prints JSON tool declarations; run in the sandbox."""
    call_command: str | None = None
    """Command that runs a discovered tool's call: its name is the last argument, its arguments are JSON on stdin."""
    max_depth: int = Field(default=3, ge=0, le=3)
    """Maximum nesting depth of delegations; 0 disables call_subagent."""

    allowed_hosts: list[str] = []
    """Hosts or patterns (``*.example.org``) that web_fetch may access without approval."""
    private_hosts: list[str] = []
    """Hosts (``name`` or ``name:port``) that may lie on private addresses, such as a company's own wiki."""
    user_agent: str = "deputize/0.1"
    """The User-Agent of web_fetch: name/version."""
    search_provider: Literal["searxng", "brave"] | None = None
    """Unset: there is no web_search."""
    search_url: str | None = None
    """The provider's address; needed for searxng."""
    search_key: SecretStr | None = None

    @field_validator("allowed_hosts", "private_hosts", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("skills_dir", "mcp_config_path")
    @classmethod
    def _located(cls, path: Path | None) -> Path | None:
        return path and located(path)

    @model_validator(mode="after")
    def _callable(self) -> Self:
        if self.discovery_command and not self.call_command:
            raise ValueError("discovery_command needs call_command: without it nothing carries out discovered tools")
        return self


def located(path: Path) -> Path:
    """Returns an absolute path if it exists below the working directory, because workers may run in another one.

    Others stay relative; the reader looks for them in its own directories.
    """
    path = path.expanduser()
    return path.absolute() if path.exists() else path
