"""Files that a git host executes, or takes orders from, once a branch that has them is pushed."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FOLDERS = (
    *(
        ".github/workflows",
        ".github/actions",
        ".gitea",
        ".forgejo",
        ".gitlab",
        ".circleci",
        ".buildkite",
        ".woodpecker",
    ),
    *(".semaphore", ".azure-pipelines", ".pipelines", ".tekton", ".teamcity", ".harness", ".devcontainer", ".drone"),
    *(".builds", ".zuul.d", "zuul.d", ".onedev"),
)
_FILES = (
    r"\.gitlab-ci(?:\.[\w-]+)?\.ya?ml|\.travis\.ya?ml|\.drone\.(?:ya?ml|star|jsonnet)|\.cirrus\.(?:ya?ml|star)"
    r"|\.woodpecker\.ya?ml|\.?appveyor\.ya?ml|azure-pipelines[\w.-]*\.ya?ml|bitbucket-pipelines\.ya?ml|jenkinsfile[\w.-]*"
    r"|\.builds?\.ya?ml|\.zuul\.ya?ml|zuul\.ya?ml|\.onedev-buildspec\.ya?ml|buildspec\.ya?ml|cloudbuild\.(?:ya?ml|json)"
    r"|wercker\.ya?ml|codefresh\.ya?ml|\.gitpod\.ya?ml|netlify\.toml|vercel\.json|\.pre-commit-config\.ya?ml"
    r"|\.readthedocs\.ya?ml|\.gitmodules|\.github|codeowners|(?:\.github|\.gitlab|docs)/codeowners"
    r"|\.github/dependabot\.ya?ml|(?:.*/)?action\.ya?ml"
)
_PATTERN = re.compile(rf"(?:{'|'.join(map(re.escape, _FOLDERS))})(?:/.*)?|{_FILES}", re.DOTALL)


def run_by_hosts(paths: Iterable[str]) -> list[str]:
    """Returns those of the paths that a git host may act upon; letters of both cases count alike."""
    return [path for path in paths if _PATTERN.fullmatch(path.lower())]
