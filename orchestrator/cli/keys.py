"""`deputize keys`: the keys that sign proofs of verified results."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from . import output
from .connect import load_settings
from .values import Duration


@click.group()
def keys() -> None:
    """Make and list the keys that sign proofs of verified results.

    They are in the folder of DEPUTIZE_PROOF_KEYS, which each worker needs. The newest one signs. To exchange it, make
    another one, give its public half to those who prove, and delete the private file (.pem) of the old one: what it has
    signed is still accepted by its public half (.pub).
    """


@keys.command()
@click.option("--expires", type=Duration(min=86400, max=1e9), metavar="TIME", help="How long it is accepted: 90d.")
def new(expires: float | None) -> None:
    """Make a key, which signs from now on, and print its public half."""
    from ...shared.proof.keys import make_key
    from ..home import unusable

    folder = load_settings().proof_key_folder
    until = None if expires is None else (datetime.now(UTC) + timedelta(seconds=expires)).date()
    try:
        made = make_key(folder, until)
    except OSError as error:
        raise unusable(folder, error) from None
    output.block(made.with_suffix(".pub").read_text("ascii").rstrip())
    output.note(f"it signs from now on; its private half is {made}")


@keys.command("list")
def list_() -> None:
    """List the keys, the newest one last."""
    from ...shared.proof.keys import keys_in, signing

    found = keys_in(load_settings().proof_key_folder)
    states = {path: "expired" if key.is_expired else "accepted" for path, key in found.items()}
    states |= {path: "signs" for path in (signing(found),) if path}
    rows = [(key.id, str(key.expires or "never"), states[path]) for path, key in found.items()]
    output.lines(output.columns([("id", "expires", "state"), *rows], left={0, 1, 2}))


@keys.command()
def public() -> None:
    """Print the public halves of all keys, for `deputize prove --key FILE`."""
    for path in sorted(load_settings().proof_key_folder.glob("*.pub")):
        output.block(path.read_text("ascii").rstrip())
