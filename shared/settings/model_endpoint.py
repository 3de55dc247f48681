"""The variables of the model's endpoint. They are the SDK's own, and only workers get them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import unquote, urlsplit

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
URL_VARIABLES = ("ANTHROPIC_BASE_URL",)
HEADER_VARIABLES = ("ANTHROPIC_CUSTOM_HEADERS",)
MODEL_VARIABLES = (*KEY_VARIABLES, *URL_VARIABLES, *HEADER_VARIABLES)
"""Each is also read from the file that ``<name>_FILE`` names (container secrets)."""
_SCHEME = re.compile(r"^(Bearer|Basic|Token|ApiKey)\s+", re.IGNORECASE)


def header_pairs(lines: str) -> list[tuple[str, str]]:
    """Returns names and values of headers written as ``Name: value``, one per line."""
    pairs = (line.partition(":") for line in lines.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon]


def _header_values(lines: str) -> list[str]:
    """Returns the values of headers written as ``Name: value``, one per line, without a scheme such as ``Bearer``."""
    return [_SCHEME.sub("", value) for _, value in header_pairs(lines)]


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """Returns the values in these variables that must not leave the process: keys, headers, credentials in URLs."""
    keys = [variables[name] for name in KEY_VARIABLES if name in variables]
    headers = [value for name in HEADER_VARIABLES for value in _header_values(variables.get(name, ""))]
    in_urls = [value for name in URL_VARIABLES for value in credentials_in(variables.get(name))]
    return [*keys, *headers, *in_urls]


def names_endpoint(variables: Collection[str]) -> bool:
    """Returns whether these variables are enough to reach a model; further headers alone are not."""
    return any(name in variables for name in (*KEY_VARIABLES, *URL_VARIABLES))


def passwords_in(url: str | None) -> list[str]:
    """Returns the password in a URL, as written and as sent. Its user is a name that may occur in any text."""
    _, _, password = (urlsplit(url).netloc if url else "").rpartition("@")[0].partition(":")
    return list(dict.fromkeys([password, unquote(password)])) if password else []


def credentials_in(url: str | None) -> list[str]:
    """Returns the user and the password in a URL, as written and as sent. The rest of it is not secret."""
    userinfo, at, _ = (urlsplit(url).netloc if url else "").rpartition("@")
    parts = [part for part in (userinfo, *userinfo.partition(":")[::2]) if part] if at else []
    return list(dict.fromkeys([*parts, *map(unquote, parts)]))
