"""Keys: made once, private, read only where they are right, and never in an error."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from deputize.shared.errors import Invalid, Misconfigured
from deputize.shared.proof.envelope import opened, signed
from deputize.shared.proof.keys import keys_in, make_key, public_keys, signer_in, signing
from deputize.shared.proof.statement import STATEMENT
from deputize.shared.settings import Settings

FACTS = {"_type": STATEMENT}
EC = ec.generate_private_key(ec.SECP256R1())
EC_PRIVATE = EC.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
EC_PUBLIC = EC.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
ENDED = date(2026, 1, 1)


def envelope(folder: Path) -> bytes:
    signer = signer_in(folder)
    assert signer
    return signed(FACTS, signer)


def publics(folder: Path) -> list[bytes]:
    return [path.with_suffix(".pub").read_bytes() for path in keys_in(folder)]


def test_a_key_that_was_made_signs_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "new/keys"
    assert signer_in(folder) is None
    made = make_key(folder)
    assert [each.stat().st_mode & 0o777 for each in (folder, made)] == [0o700, 0o600]
    assert opened(envelope(folder), public_keys(publics(folder))) == (FACTS, keys_in(folder)[made])


def test_the_newest_key_signs_and_what_earlier_ones_signed_is_accepted(tmp_path: Path) -> None:
    old = make_key(tmp_path)
    before = envelope(tmp_path)
    new = make_key(tmp_path, date(2100, 1, 1))
    after = envelope(tmp_path)
    ids = [each.id for each in keys_in(tmp_path).values()]
    assert [*keys_in(tmp_path)] == [old, new]
    old.unlink()
    texts = publics(tmp_path)
    for given in (texts, [b"\n".join(texts)], [*texts, *texts]):
        keys = public_keys(given)
        assert len(keys) == 2
        assert [opened(each, keys)[1].id for each in (before, after)] == ids
    with pytest.raises(Invalid, match="none of those given"):
        opened(after, public_keys(texts[:1]))


def test_an_expired_key_does_not_sign(tmp_path: Path) -> None:
    make_key(tmp_path, ENDED)
    assert (signing(keys_in(tmp_path)), signer_in(tmp_path)) == (None, None)
    assert [each.expires for each in public_keys(publics(tmp_path))] == [ENDED]


def test_the_private_half_is_masked_and_shown_in_no_sandbox(tmp_path: Path) -> None:
    made = make_key(tmp_path / "keys")
    settings = Settings.load(environ={}, home=tmp_path, proof_keys=tmp_path / "keys")
    (line,) = [each for each in made.read_text().splitlines() if not each.startswith("-")]
    assert line in settings.secrets
    (settings.proof_key_folder / "0.pem").write_bytes(b"\xff")  # one that cannot be read unmasks no other one
    assert line in settings.secrets
    assert tmp_path / "keys" in settings.private
    assert line not in str(settings.child_environment())


@pytest.mark.parametrize(
    ("data", "mode", "reason"),
    [
        (b"planted-secret", 0o600, "not a private key"),
        (EC_PRIVATE, 0o600, "is not a key of Ed25519"),
        (b"planted-secret" * 100_000, 0o600, "is larger than"),
        (b"planted-secret", 0o640, "other users may read"),
        (b"planted-secret", 0o604, "other users may read"),
        (None, 0o600, "are of two keys"),
    ],
    ids=["other text", "other kind", "large", "group", "others", "another key"],
)
def test_a_wrong_private_key_is_refused_without_its_words(tmp_path: Path, data: Any, mode: int, reason: str) -> None:
    path = make_key(tmp_path / "keys")
    path.write_bytes(data or make_key(tmp_path / "others").read_bytes())
    path.chmod(mode)
    with pytest.raises(Misconfigured, match=reason) as caught:
        signer_in(tmp_path / "keys")
    assert "planted" not in str(caught.value)
    assert caught.value.__cause__ is None


PEM = b"-----BEGIN PUBLIC KEY-----\n%b\n-----END PUBLIC KEY-----\n"


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        (b"", "not a public key"),
        (EC_PRIVATE, "not a public key"),
        (EC_PUBLIC, "not one of Ed25519"),
        (PEM % b"AAAA", "not a public key"),
        (b"expires: soon\n" + EC_PUBLIC, "no date after"),
        (b"until: 2100-01-01\n" + EC_PUBLIC, "a line beside it"),
        (EC_PUBLIC + b"more", "not one of Ed25519"),
    ],
    ids=["empty", "private", "other kind", "no key", "no date", "other line", "rest"],
)
def test_what_is_no_public_key_of_ed25519_is_refused(pem: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=reason):
        public_keys([pem])
    make_key(tmp_path).with_suffix(".pub").write_bytes(pem)
    with pytest.raises(Misconfigured, match="is not one public key"):
        signer_in(tmp_path)
