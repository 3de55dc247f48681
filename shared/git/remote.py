"""Which repositories may be cloned from, and delivered to: URLs of named hosts, and folders below named roots.

A host counts by its exact name, which the operator wrote. It may lie on a private address: its certificate proves
which host answers, whatever the name resolves to, and redirects are not followed. Only where the operator wrote
``http://`` before the name, the network is trusted instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from ..errors import Invalid, Misconfigured, RepositoryFailed
from ..settings import Settings
from ..settings.git_credentials import Credential, host_of, names_of, read_credentials
from ..text import shortened, visible
from ..workspaces import IS_PRIVATE, is_in_one
from .folder import state_of

URL = "/workspace/url"
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FORBIDDEN_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[/.-]|/\.|[/.]$|\.lock(/|$)")
_AMBIGUOUS = re.compile(r"(?i:refs(?:/.*)?|head|[0-9a-f]{40}|[0-9a-f]{64})|(?:heads|tags|remotes)/.*|[A-Z_]+_HEAD")
MAX_REF = 255


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository that may be used. ``url`` is how people name it, and holds no credentials."""

    url: str
    scheme: str
    host: str = ""
    """Without a host it is a folder of this machine."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The part of git's environment that is about it, with the credentials of its host."""
    state: Path | None = None
    """Of a folder: where its repository keeps git's state. git gets this path, so that it looks for no other one."""

    @property
    def address(self) -> str:
        """What git gets."""
        return str(self.state or self.url)


def remote_of(url: str, settings: Settings) -> Remote:
    """Returns the repository of an accepted request, as it is used now.

    Raises Invalid where the settings do not allow it, and RepositoryFailed for a folder that is none, and for
    credentials that cannot be read.
    """
    parts = check_url(url, settings)
    if isinstance(parts, Path):
        state = state_of(parts, lambda place: _checked_folder(place, settings))
        return Remote(str(parts), "file", variables={"GIT_ALLOW_PROTOCOL": "file"}, state=state)
    host = _host(parts)
    variables = {"GIT_ALLOW_PROTOCOL": parts.scheme}
    if found := credential_of(url, settings):  # in the environment, which no other user can read
        variables |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"http.{parts.scheme}://{parts.netloc}/.extraHeader"}
        variables["GIT_CONFIG_VALUE_0"] = f"Authorization: {found.header}"
    return Remote(url, parts.scheme, host, variables)


def credential_of(url: str, settings: Settings) -> Credential | None:
    """Returns the credentials for a repository's address; None where the file has none of its host.

    Raises Invalid where all of its host are for other repositories, and RepositoryFailed where they cannot be read.
    """
    try:
        entries = read_credentials(settings.git_credentials_file)
    except Misconfigured as error:
        raise RepositoryFailed("repository_authentication", str(error)) from None
    parts = urlsplit(url)
    entries = [each for each in entries if each.host == _host(parts) and _is_meant(each, parts)]
    try:
        names = names_of(parts.path)
    except ValueError:
        names = ()
    covering = [each for each in entries if each.covers(names)]
    if entries and not covering:
        why = f"is none of the repositories that the tokens of {_host(parts)} are for"  # names may be private
        raise _refusal(f"{why}; see DEPUTIZE_GIT_CREDENTIALS_FILE")
    return max(covering, key=lambda each: len(each.path), default=None)


def _is_meant(credential: Credential, parts: SplitResult) -> bool:
    """Whether a token of a host is for this address: on the usual ports, https and http are two servers."""
    return parts.port not in (None, 80, 443) or credential.scheme == parts.scheme


def check_url(url: str, settings: Settings) -> SplitResult | Path:
    """Returns the parts of a URL, or the folder that it names. Raises Invalid if it may not be cloned from.

    The message repeats nothing of a URL that may hold credentials.
    """
    if visible(url) != url or " " in url or not url.isascii() or "\\" in url or '"' in url:
        raise _refusal("contains characters that no address of a repository needs; percent-encode them")
    if url.startswith("-") or _HELPER.match(url):
        raise _refusal("would be an option or name a program; give https://HOST/PATH")
    scheme = _SCHEME.match(url)
    if scheme is None:
        if not url.startswith("/"):
            other = "ssh is not supported" if ":" in url else 'in a shell "$PWD" is that of its directory'
            raise _refusal(f"is neither https://HOST/PATH nor an absolute path; {other}")
        return _checked_folder(Path(url), settings)
    if scheme[1].lower() not in ("https", "http", "file"):
        raise _refusal(f"uses {scheme[1]}, which is not supported; give https://HOST/PATH")
    parts = _split(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise _refusal("names another machine; file:///PATH is a folder of the worker's")
        return _checked_folder(Path(unquote(parts.path)), settings)
    _check_host(parts, settings)
    with suppress(RepositoryFailed):  # the worker's own words about its file reach the result
        credential_of(url, settings)
    return parts


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise _refusal("is not a valid URL") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _refusal("may hold credentials; leave them out, DEPUTIZE_GIT_CREDENTIALS_FILE has them per host")
    return parts


def _check_host(parts: SplitResult, settings: Settings) -> None:
    host, name = _host(parts), parts.hostname or ""
    if not _HOST.fullmatch(f"[{name}]" if ":" in name else name) or len(parts.path) < 2:
        raise _refusal("is not https://HOST/PATH")
    if parts.scheme == "http" and host in {
        _host(urlsplit(each)) for each in settings.git_hosts if each.lower().startswith("http:")
    }:
        return
    if host not in {each.lower().removesuffix(":443") for each in settings.git_hosts}:
        known = ", ".join(settings.git_hosts) or "none"
        raise _refusal(f"is on {shortened(host, 100)}, which is not an allowed host ({known}); see DEPUTIZE_GIT_HOSTS")
    if parts.scheme == "http" and not (_is_loopback(name) and parts.port):
        raise _refusal(
            "is without TLS, which is only for a named port of this machine, and where DEPUTIZE_GIT_HOSTS has "
            "http://HOST:PORT; give https://HOST/PATH"
        )


def _host(parts: SplitResult) -> str:
    return host_of(parts.scheme, parts.hostname or "", parts.port)


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _checked_folder(path: Path, settings: Settings) -> Path:
    """Returns the real path of a folder below one of the allowed roots, as for a workspace that is a directory."""
    sources, real = settings.workspace_sources, path.resolve()
    if sources is None and not settings.local:
        raise _refusal("is a folder, and none may be cloned from here; set DEPUTIZE_WORKSPACE_SOURCES")
    if sources is not None and not any(real.is_relative_to(root.resolve()) for root in sources):
        known = ", ".join(map(str, sources))
        raise _refusal(f"is not below an allowed root ({known}); see DEPUTIZE_WORKSPACE_SOURCES")
    if is_in_one(real, settings.private):
        raise _refusal(IS_PRIVATE)
    return real


def check_ref(ref: str, pointer: str) -> None:
    """Raises Invalid for a name that git does not allow, by the rules of ``git check-ref-format``."""
    if not ref or len(ref) > MAX_REF or _FORBIDDEN_IN_REF.search(ref) or not ref.isprintable() or ref == "@":
        raise Invalid.at(pointer, f"{shortened(visible(ref), 100)!r} is not the name of a branch, tag or commit")


def check_branch(name: str, pointer: str) -> None:
    """Raises Invalid as ``check_ref`` does, and for a branch whose short name would mean something else in a clone."""
    check_ref(name, pointer)
    if _AMBIGUOUS.fullmatch(name):
        raise Invalid.at(pointer, f"{shortened(name, 100)!r} means something else to git than a branch; choose another")


def is_commit(ref: str) -> bool:
    """Whether it is a whole commit id, which never changes."""
    return _COMMIT.fullmatch(ref) is not None


def _refusal(why: str) -> Invalid:
    return Invalid.at(URL, f"the repository's url {why}")
