"""`settings` lists every setting; `token` creates, lists and revokes the tokens of callers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from ...shared.errors import Misconfigured, Unavailable
from ...shared.wording import cut
from ..scopes import Scope
from . import output
from .connect import load_settings, stack_here
from .errors import Exit
from .settings_checks import mistakes
from .values import Duration, Parsed

if TYPE_CHECKING:
    from ...shared.settings import Settings

LONGEST = 60


@click.command()
@click.option("--toml", is_flag=True, help="As a deputize.toml, with the meaning of each setting.")
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
def settings(toml: bool, as_json: bool) -> Exit:
    """List the settings: variable, value in force, and the default where it is another one.

    Values of secrets are not shown. `deputize settings --toml > deputize.toml` begins a file of your own. The exit code
    is 3 where a file that is named cannot be used, such as one of secrets or rules, or an address is wrong.
    """
    from ...shared.settings.listing import as_toml, setting_lines

    if toml and as_json:
        raise click.UsageError("--toml and --json are two forms; give one")
    found = load_settings()
    lines = setting_lines(found)
    if toml:
        output.lines(as_toml(lines))
    elif as_json:
        for line in lines:
            output.json_line(json.dumps(asdict(line), ensure_ascii=False))
    else:
        rows = [
            (line.variable, _shown(line.value), "" if line.is_default else f"default: {_shown(line.default)}")
            for line in lines
        ]
        output.lines(output.columns(rows, left={0, 1, 2}))
    wrong = [*mistakes(found)]
    for each in wrong:
        output.note(f"deputize: {each}")
    return Exit.UNREACHABLE if wrong else Exit.SUCCEEDED


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
def models(as_json: bool) -> None:
    """List the model of the settings and those of [models.NAME]: where each is, and whether its key is there.

    They are those of the settings here; a service elsewhere has its own. A window or a price "by name" is what the
    worker's list has for the model's name. `deputize doctor --model NAME` asks one.
    """
    found = load_settings()
    names = dict.fromkeys([found.model, *found.models])
    head = ("model", "platform", "address", "name there", "window", "price in/out", "lacks", "key")
    rows: list[tuple[str, ...]] = [head]
    for name in names:
        shown, lack, is_default = _as_shown(found, name), _lacking(found, name), name == found.model
        if as_json:
            facts = {"name": name, "default": is_default, "missing": lack}
            output.json_line(json.dumps(facts | shown, ensure_ascii=False))
        rows.append((f"{name} (default)" if is_default else name, *_cells(shown), lack or _key(found, name)))
    if not as_json:
        output.lines(output.columns(rows, left=set(range(len(head)))))


def _as_shown(settings: Settings, name: str) -> dict[str, Any]:
    """Returns the facts of a model's table, and those that other settings have for it; no secret of its address."""
    table = settings.table_of(name)
    price, window = table.price or settings.prices.get(table.model or name), table.context_window
    shown = table.model_copy(update={"price": price, "context_window": window or settings.context_tokens})
    facts = shown.model_dump(mode="json")
    if table.base_url:
        facts["base_url"] = urlsplit(table.base_url)._replace(query="", fragment="").geturl()
    return facts | ({"platform": "script"} if name.startswith("scripted") else {})


def _lacking(settings: Settings, name: str) -> str | None:
    """Returns what a model needs and the settings do not have; None where they have all."""
    try:
        settings.table_of(name).read_keys(settings.model_endpoint)
    except Misconfigured as error:
        return str(error)
    return None if settings.reaches(name) else "ANTHROPIC_API_KEY is not set"


def _key(settings: Settings, name: str) -> str:
    """Returns where the key of a model is that lacks nothing."""
    table = settings.table_of(name)
    if name.startswith("scripted"):
        return "–"
    if table.keys:
        return f"all {len(table.keys)} are there"
    if table.key or not table.is_own:
        return "there"
    return "none is named" if table.platform == "anthropic" else "left to the platform's SDK"


def _cells(facts: Mapping[str, Any]) -> tuple[str, ...]:
    unset = "–" if facts["platform"] == "script" else "by name"
    price = f"{facts['price']['input']:g} / {facts['price']['output']:g}" if facts["price"] else unset
    window = f"{facts['context_window']:,}" if facts["context_window"] else unset
    named = (facts["base_url"] or "–", facts["model"] or "–")
    return (facts["platform"], *named, window, price, ", ".join(facts["lacks"]) or "–")


def _shown(value: str) -> str:
    return cut(value, LONGEST) or "unset"


@click.group(invoke_without_command=True)
def token() -> None:
    """Print the token of the service: the one of DEPUTIZE_TOKEN, or that of the stack on this machine.

    The stack's own token stays the same when it is started again; `deputize token rotate` makes a new one. `deputize
    token new` makes further ones, which have only the scopes that you name.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    settings = load_settings()
    if settings.token is not None:
        output.line(settings.token.get_secret_value())
        return
    stack = stack_here(settings)
    if stack is None:
        raise Unavailable(
            "no service runs on this machine; start one with `deputize up --detach`, or set DEPUTIZE_TOKEN"
        )
    if not stack.token:
        raise Unavailable("the service on this machine asks for no token; it was started with --no-token")
    output.line(stack.token)


@token.command()
def rotate() -> None:
    """Make a new token for the stack on this machine, and print it.

    A stack that runs takes the old one until it ends.
    """
    from ..home import renewed_token, unusable

    settings = load_settings()
    if settings.token is not None:
        raise click.UsageError("the token is the one of DEPUTIZE_TOKEN; change it there, then start the service again")
    if settings.no_token and settings.tokens_file is None:
        raise click.UsageError("the stack asks for no token with DEPUTIZE_NO_TOKEN; unset it first")
    if settings.url is not None:
        raise click.UsageError("the service of DEPUTIZE_URL has tokens of its own; unset it first")
    stack = stack_here(settings)
    try:
        output.line(renewed_token(settings.home))
    except OSError as error:
        raise unusable(settings.home, error) from None
    if stack is not None and not stack.token:
        output.note("the stack that runs asks for no token; it was started with --no-token")
    elif stack is not None:
        output.note("the stack that runs still takes the old one; `deputize up --detach --replace` starts it anew")


class _Scopes(click.Choice[str]):
    """Names of scopes, separated by commas."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return [super(_Scopes, self).convert(each.strip(), param, ctx) for each in value.split(",")]


def _cap(value: str) -> tuple[str, float]:
    window, _, usd = value.partition("=")
    try:
        return window.strip(), float(usd)
    except ValueError:
        raise ValueError(f"{value!r} is not WINDOW=USD, such as weekly_usd=20") from None


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=_Scopes([scope.value for scope in Scope]),
    help="Its scope: several after commas, or given more than once. None includes another one.",
)
@click.option(
    "--owner",
    metavar="NAME",
    help="Whose its delegations are: tokens of one owner share them. Default: the token's name.",
)
@click.option(
    "--spend",
    "caps",
    multiple=True,
    type=Parsed("cap", _cap),
    metavar="WINDOW=USD",
    help="A cap on what its owner spends: daily_usd, weekly_usd, four_weeks_usd or total_usd.",
)
@click.option("--expires", type=Duration(min=1, max=1e9), metavar="TIME", help="How long it is valid: 12h, 90d.")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append its entry to this tokens file instead of printing it.",
)
def new(
    name: str,
    scopes: tuple[list[str], ...],
    owner: str | None,
    caps: tuple[tuple[str, float], ...],
    expires: float | None,
    path: Path | None,
) -> None:
    """Make a token called NAME and print it, once, with the entry for the file of DEPUTIZE_TOKENS_FILE.

    Without the scope `all` it is confined to the delegations of its owner. The entry has the token's digest only. A
    service that uses the file accepts the token at once.
    """
    import secrets

    from .. import access_tokens

    made = secrets.token_urlsafe(32)
    until = None if expires is None else datetime.now(UTC) + timedelta(seconds=expires)
    entry = access_tokens.written_entry(
        name, access_tokens.digest_of(made.encode()), [*dict.fromkeys(chain(*scopes))], until, owner, dict(caps)
    )
    if path is not None:
        access_tokens.append_entry(path, entry)
    output.line(made)
    if path is None:
        output.block(f"\n{entry.rstrip()}")
    else:
        output.note(f"its entry is in {path}; it cannot be shown again")
