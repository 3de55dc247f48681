"""Pages that show a file among much else, and where the file itself is."""

from __future__ import annotations

import re

_GITHUB = re.compile(
    r"https?://(?:www\.)?github\.com/([^/?#]+)/([^/?#]+)/(?:blob|raw)/([^?#]+)(?:[?#].*)?", re.IGNORECASE
)
_GITLAB = re.compile(r"(https?://(?:www\.)?gitlab\.com/[^?#]+?/-)/blob/([^?#]+)(?:[?#].*)?", re.IGNORECASE)


def raw_url(url: str) -> str:
    """The URL of the file that a page of a code host shows; every other URL as it is."""
    if found := _GITHUB.fullmatch(url.strip()):
        owner, repository, path = found.groups()
        # without a path behind the branch it is no file's page
        return f"https://raw.githubusercontent.com/{owner}/{repository}/{path}" if "/" in path.strip("/") else url
    if found := _GITLAB.fullmatch(url.strip()):
        return f"{found[1]}/raw/{found[2]}"
    return url
