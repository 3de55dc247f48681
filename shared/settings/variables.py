"""Settings as text: environment variables, those of the model's endpoint among them, and types that are read from them.

The variables of the endpoint are the SDK's own, and only workers get them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic_core import to_json

from ..errors import Misconfigured
from ..log import log
from ..text import did_you_mean, visible

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
URL_VARIABLES = ("ANTHROPIC_BASE_URL",)
HEADER_VARIABLES = ("ANTHROPIC_CUSTOM_HEADERS",)
PLATFORM_KEYS: Mapping[str, Sequence[str]] = {
    "aws": ("ANTHROPIC_AWS_API_KEY",),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY"),
    "foundry": ("ANTHROPIC_FOUNDRY_API_KEY",),
}
"""The variables with a platform's key, for tables of ``models`` that name none, in the order of its SDK."""
PLATFORM_VARIABLES = tuple(dict.fromkeys(name for names in PLATFORM_KEYS.values() for name in names))
MODEL_VARIABLES = (*KEY_VARIABLES, *PLATFORM_VARIABLES, *URL_VARIABLES, *HEADER_VARIABLES)
"""Each is also read from the file that ``<name>_FILE`` names (container secrets)."""
LIBRARY_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Secrets that the libraries of platforms read themselves: they are masked, and only workers get them."""
_SCHEME = re.compile(r"^(Bearer|Basic|Token|ApiKey)\s+", re.IGNORECASE)


def header_pairs(lines: str) -> list[tuple[str, str]]:
    """Returns names and values of headers written as ``Name: value``, one per line."""
    pairs = (line.partition(":") for line in lines.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon]


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """Returns the values in these variables that must not leave the process: keys, headers, credentials in URLs."""
    keys = [text for name, text in variables.items() if name not in (*URL_VARIABLES, *HEADER_VARIABLES)]
    lines = (variables.get(name, "") for name in HEADER_VARIABLES)
    headers = [_SCHEME.sub("", value) for each in lines for _, value in header_pairs(each)]
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


_UNSENT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|^\s|\s\Z")
PREFIX = "DEPUTIZE_"
_READ_BY_LIBRARIES = re.compile(r"(ANTHROPIC|DEPUTIZE|SSL_CERT|FLOWER)_.*|.*_PROXY", re.IGNORECASE)


OF_COMPOSE = (
    "DEPUTIZE_PROJECTS",
    "DEPUTIZE_PYTHON_IMAGE",
    "DEPUTIZE_REDIS_IMAGE",
    "DEPUTIZE_FLOWER_PORT",
    "DEPUTIZE_EXTRAS",
)
"""Variables that only docker-compose.yml reads; they may be set where a command runs, too."""


def environment() -> Mapping[str, str]:
    """Returns the process's variables; no other function reads them.

    Where an operator's file refers to some of them (``${VAR}`` in mcp.json), its reader passes on no others.
    """
    return os.environ


def unset_blank() -> None:
    """Unsets blank variables, for the libraries too: some of them take an empty text for an address or a file."""
    for name, text in list(os.environ.items()):
        if not text.strip() and _READ_BY_LIBRARIES.fullmatch(name):
            del os.environ[name]


def read(name: str, environ: Mapping[str, str]) -> str | None:
    """Returns a variable's text, or that of the file in its ``_FILE`` variable. Empty counts as unset."""
    text = environ.get(name, "")
    if text.strip():
        return text
    if not (path := environ.get(f"{name}_FILE", "").strip()):
        return None
    try:
        return Path(path).read_text("utf-8").strip() or None
    except OSError as error:
        raise Misconfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:  # its message quotes the file
        raise Misconfigured(f"{name}_FILE names {path}, which is not UTF-8; write it again as text") from None


def used(name: str, environ: Mapping[str, str]) -> str:
    """Returns the variable of which ``read`` takes a text: this one, or that which names its file."""
    return name if environ.get(name, "").strip() or not environ.get(f"{name}_FILE", "").strip() else f"{name}_FILE"


def warn_of_unknown(environ: Mapping[str, str], names: Iterable[str]) -> None:
    """Logs a warning for each variable that is not a setting: a misspelt one would silently have no effect."""
    known = [f"{PREFIX}CONFIG", *names]
    known += [f"{name}_FILE" for name in (*known, *MODEL_VARIABLES)]
    for name, value in environ.items():
        if value and name.upper().startswith(PREFIX) and name not in (*known, *OF_COMPOSE):
            hint = did_you_mean(name.upper()[:100], known, 1)
            suffix = f"; {hint}" if hint else ""
            log.warning("the variable %s is not a setting and has no effect%s", visible(name[:100]), suffix)


def refuse_removed(environ: Mapping[str, str], values: Mapping[str, Any], removed: Mapping[str, str]) -> None:
    """Raises Misconfigured for a setting that is another one now: without effect, what it limits would be unbounded."""
    for old, new in removed.items():
        for was, now in ((f"{PREFIX}{old.upper()}", f"{PREFIX}{new.upper().replace('.', '_')}"), (old, new)):
            if was in values or environ.get(was, "").strip():
                raise Misconfigured(f"settings: {was} is {now} now, with another default; set that instead")


def written(value: Any) -> str | None:
    """Returns a setting's value as the text of a variable; None for None and for no paths."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if value is None:
        return None
    if isinstance(value, tuple):
        return os.pathsep.join(map(str, value)) or None
    if isinstance(value, dict):
        return to_json(value).decode()
    if isinstance(value, list):
        return ",".join(str(written(each)) for each in cast("list[Any]", value))
    return str(value)


def _split(separator: str, value: Any) -> Any:
    return [part.strip() for part in value.split(separator) if part.strip()] if isinstance(value, str) else value


def _parsed_table(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"{path} is nowhere, because this user has no home; set HOME, or an absolute path") from None


def _existing(path: Path) -> Path:
    """Returns an absolute path if it exists below the working directory, because workers may run in another one.

    Others stay relative; the reader looks for them in its own directories.
    """
    path = _expanded(path)
    return path.absolute() if path.exists() else path


COMMA_SEPARATED = BeforeValidator(partial(_split, ","))
"""For a list: a variable contains its entries separated by commas."""
PATHS = BeforeValidator(partial(_split, os.pathsep))
"""For a tuple of paths: a variable contains them separated as those of ``PATH`` are."""
TABLE = BeforeValidator(_parsed_table)
"""For a table of tables: a variable contains it as JSON."""
FilePath = Annotated[Path, AfterValidator(_existing)]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: _expanded(path).absolute())]


def header_text(text: str) -> str:
    """Returns a text that a header can have. Raises ValueError, which does not quote it, for any other."""
    if _UNSENT.search(text):
        raise ValueError("there is a line break, a blank at an end, or another character that no header can have")
    return text


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError("there is a character that is not ASCII, which its header cannot have; write it again")
    return header_text(text)


def _secret(check: Callable[[str], str], secret: SecretStr) -> SecretStr:
    check(secret.get_secret_value())
    return secret


TokenInHeader = Annotated[SecretStr, AfterValidator(partial(_secret, header_text))]
SecretInHeader = Annotated[SecretStr, AfterValidator(partial(_secret, _ascii))]
AsciiInHeader = Annotated[str, AfterValidator(_ascii)]


def upper_case(value: object) -> object:
    return value.upper() if isinstance(value, str) else value
