"""``deputize.toml``: the first of ``--config``, ``DEPUTIZE_CONFIG`` and the user's own, and how such files are read.

For mistakes in other TOML files also the lines of tables and keys, for which the parser has none.

One that merely lies in the working directory is not used: it may have come with a repository that is not trusted.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from ..errors import Misconfigured

KeyPath = tuple[str | int, ...]

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_TOML_TOKEN = re.compile(
    rf"^[ \t]*\[(?P<array>\[)?[ \t]*(?P<header>{_DOTTED})[ \t]*\](?(array)\])"
    rf"|^[ \t]*(?P<key>{_DOTTED})[ \t]*="
    r"|(?P<open>[\[{])|(?P<close>[\]}])"
    r'|"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*",
    re.MULTILINE | re.DOTALL,
)
_MAX_FILE = 1024 * 1024
_MOUNTED = Path("/run/secrets")
"""Where containers find their secrets: their user has to be able to read what is another's."""
_NOT_WAITING = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def read(config: Path | None, environ: Mapping[str, str], paths: Set[str]) -> dict[str, Any]:
    """Returns the settings of the file that applies: ``config`` is the one that the command line names.

    ``environ`` may name another one, and the user's own configuration folder. ``paths`` are the settings that are
    paths. Raises Misconfigured if the file cannot be read.
    """
    named = _named(config, environ)
    if named:
        try:
            return _parsed(named.read_bytes(), named, paths)
        except FileNotFoundError:
            raise Misconfigured(f"the configuration file {named} does not exist") from None
        except OSError as error:
            raise Misconfigured(f"the configuration file {named} cannot be read: {error.strerror}") from None
    own = configuration_folder(environ) / "deputize.toml"
    return _parsed(regular_bytes(own) or b"", own, paths)


def _named(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    return config or (Path(environ["DEPUTIZE_CONFIG"]) if environ.get("DEPUTIZE_CONFIG") else None)


def in_use(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Returns the file that ``read`` reads; None where there is none, or only a device such as /dev/null."""
    named = _named(config, environ)
    path = named or configuration_folder(environ) / "deputize.toml"
    return path if path.is_file() else None


def configuration_folder(environ: Mapping[str, str]) -> Path:
    """Returns the user's configuration folder: ``$XDG_CONFIG_HOME/deputize``, by default ``~/.config/deputize``."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # Without any home it does not exist; it is never a path below the working directory.
    own = Path("/", os.path.expanduser("~"), ".config")  # noqa: PTH111 - the other one raises without a home
    return (Path(base) if base.startswith("/") else own) / "deputize"


def regular_bytes(path: Path, most: int = _MAX_FILE) -> bytes | None:
    """Returns the bytes of a regular file, or None for anything else: a pipe or a device would block.

    Raises Misconfigured for a file that cannot be read or has more than ``most`` bytes.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NOT_WAITING)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise Misconfigured(f"{path} is larger than {most} bytes")
    return data


def secret_bytes(path: Path, name: str) -> bytes:
    """Returns the bytes of a file of secrets. Raises Misconfigured, which never quotes it, if other users may read it.

    ``name`` is the setting that names it.
    """
    data = regular_bytes(path)
    if data is None:
        raise Misconfigured(f"{name}: {path} does not exist")
    found = path.stat()
    is_ours = found.st_uid == os.geteuid() or not path.is_relative_to(_MOUNTED)
    if is_ours and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Misconfigured(f"{name}: other users may read {path}; chmod 600 {path}")
    return data


def toml_of(data: bytes) -> dict[str, Any]:
    """Parses TOML. Raises ValueError if it is not valid."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _parsed(data: bytes, path: Path, paths: Set[str]) -> dict[str, Any]:
    """Returns a file's values; its relative paths are relative to its own directory."""
    try:
        values = toml_of(data)
    except ValueError as error:
        raise Misconfigured(f"the configuration file {path} cannot be read: {error}") from None
    if nul := next((key for key, value in values.items() if "\0" in str(value)), None):
        raise Misconfigured(f"the configuration file {path} contains a NUL character in {nul}")
    folder = path.absolute().parent
    if isinstance(rules := values.get("policy"), str):
        values["policy"] = [rules]  # only a variable separates paths by colons
    for table in _tables_of(values):
        table |= {key: _from(folder, table[key]) for key in paths if table.get(key)}
    return values


def _tables_of(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the tables in which paths may be."""
    sandbox = values.get("sandbox")
    in_profiles = _inner(sandbox.get("profiles")) if isinstance(sandbox, dict) else ()
    of_tables = [each for name in ("triggers", "environments", "credentials") for each in _inner(values.get(name))]
    tables = (values, values.get("tools"), sandbox, values.get("redis"), *in_profiles, *of_tables)
    yield from (table for table in tables if isinstance(table, dict))


def _inner(table: Any) -> Collection[Any]:
    return table.values() if isinstance(table, dict) else ()


def _from(folder: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_from(folder, each) for each in value]
    return str(folder / Path(value).expanduser()) if isinstance(value, str) else value


def syntax_error(error: ValueError) -> tuple[int | None, str]:
    """Returns the line that an error of the parser names, if it names one, and its message without it."""
    found = _AT_LINE.fullmatch(str(error))
    return (int(found[2]), found[1]) if found else (None, str(error))


def line_of(lines: Mapping[KeyPath, int], keys: KeyPath) -> int:
    """Returns the line of a key, or of the innermost table or key around it: what is written inline has none."""
    return next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), 1)


def line_numbers(text: str) -> Mapping[KeyPath, int]:
    """Returns the line of each table and key of a valid document, by their path: ``("rule", 0, "name")``."""
    ends = [found.start() for found in re.finditer("\n", text)]
    lines: dict[KeyPath, int] = {}
    last: dict[KeyPath, int] = {}  # the index of the last table of each array
    table: KeyPath = ()
    depth = 0
    for token in _TOML_TOKEN.finditer(text):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth:  # a line inside an array may look like a table
            continue
        if token["key"]:
            path = _below(table, _parts(token["key"]), last)
        elif token["header"]:
            path = table = _table(_parts(token["header"]), last, is_array=token["array"] is not None)
        else:
            continue
        lines.setdefault(path, bisect_right(ends, token.end() - 1) + 1)
    return lines


def _table(parts: Sequence[str], last: dict[KeyPath, int], *, is_array: bool) -> KeyPath:
    """Returns a table's path; one of an array is counted in ``last``."""
    if not is_array:
        return _below((), parts, last)
    array = (*_below((), parts[:-1], last), parts[-1])
    last[array] = last.get(array, -1) + 1
    return (*array, last[array])


def _below(path: KeyPath, parts: Sequence[str], last: Mapping[KeyPath, int]) -> KeyPath:
    """Returns the path below another; a name of an array means its last table."""
    for part in parts:
        path = (*path, part)
        path = (*path, last[path]) if path in last else path
    return path


def _parts(dotted: str) -> Sequence[str]:
    """Returns the names of a dotted key, without quotes."""
    parts: list[str] = []
    value: Any = tomllib.loads(f"{dotted} = 0")
    while value:
        ((name, value),) = value.items()
        parts.append(name)
    return parts
