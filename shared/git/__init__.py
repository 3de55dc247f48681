"""git outside of a sandbox: questions about a repository, clones of remote ones, and branches that are pushed."""

from .command import (
    GitCommand,
    git,
    git_directory,
    read_regular,
    repository_of,
    running_git,
    shared_state,
)

__all__ = [
    "GitCommand",
    "git",
    "git_directory",
    "read_regular",
    "repository_of",
    "running_git",
    "shared_state",
]
