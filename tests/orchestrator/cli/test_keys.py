"""`deputize keys`: what is made, listed and printed, without a service."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from deputize.shared.proof.keys import keys_in, make_key, public_keys
from tests.orchestrator.command_line import deputize


async def test_the_newest_key_signs_and_the_public_halves_of_all_are_printed(tmp_path: Path) -> None:
    folder = tmp_path / "home/proof-keys"
    make_key(folder, date(2026, 1, 1))
    make_key(folder)
    ended, old = (key.id for key in keys_in(folder).values())
    home: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home")}
    made = await deputize("keys", "new", "--expires", "30d", **home)
    (new,) = public_keys([made.out.encode()])
    private = folder.glob(f"*-{new.id[:12]}.pem")
    assert (made.code, [path.stat().st_mode & 0o777 for path in private]) == (0, [0o600])
    listed = await deputize("keys", "list", **home)
    assert [line.split() for line in listed.out.splitlines()[1:]] == [
        [ended, "2026-01-01", "expired"],
        [old, "never", "accepted"],
        [new.id, str(new.expires), "signs"],
    ]
    printed = await deputize("keys", "public", **home)
    assert [key.id for key in public_keys([printed.out.encode()])] == [ended, old, new.id]
    secrets = [path.read_text().splitlines()[1] for path in folder.glob("*.pem")]
    assert [secret for secret in secrets if secret in made.out + made.err + listed.out + printed.out] == []
