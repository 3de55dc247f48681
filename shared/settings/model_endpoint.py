"""The variables of the model's endpoint. They are the SDK's own, and only workers get them."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

MODEL_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
)
"""Each is also read from the file that ``<name>_FILE`` names (container secrets)."""
_SCHEME = re.compile(r"^(Bearer|Basic|Token|ApiKey)\s+", re.IGNORECASE)


def header_pairs(lines: str) -> list[tuple[str, str]]:
    """Returns names and values of headers written as ``Name: value``, one per line."""
    pairs = (line.partition(":") for line in lines.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon]


def header_values(lines: str) -> list[str]:
    """Returns the values of headers written as ``Name: value``, one per line, without a scheme such as ``Bearer``."""
    return [_SCHEME.sub("", value) for _, value in header_pairs(lines)]


def credentials_in(url: str | None) -> list[str]:
    """Returns the user and the password in a URL, as written and as sent. The rest of it is not secret."""
    userinfo, at, _ = (urlsplit(url).netloc if url else "").rpartition("@")
    parts = [part for part in (userinfo, *userinfo.partition(":")[::2]) if part] if at else []
    return list(dict.fromkeys([*parts, *map(unquote, parts)]))
