"""Keys: made once, private, read only where they are right, and never in an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from deputize.shared.errors import Invalid, Misconfigured
from deputize.shared.proof.envelope import STATEMENT, opened, signed
from deputize.shared.proof.keys import make_key, public_keys, signer_from

FACTS = {"_type": STATEMENT}
EC = ec.generate_private_key(ec.SECP256R1())
EC_PRIVATE = EC.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
EC_PUBLIC = EC.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_a_key_that_was_made_signs_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    id, public = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    signer = signer_from(path)
    assert signer.public_key.keyid == id
    assert opened(signed(FACTS, signer), public_keys([public.encode()])) == FACTS


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    path, link = tmp_path / "key.pem", tmp_path / "link.pem"
    make_key(path)
    before = path.read_bytes()
    link.symlink_to(tmp_path / "elsewhere")
    for taken in (path, link):
        with pytest.raises(FileExistsError):
            make_key(taken)
    assert path.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_after_a_rotation_proofs_of_both_keys_are_accepted(tmp_path: Path) -> None:
    made = [make_key(tmp_path / name)[1].encode() for name in ("old", "new")]
    for given in (made, [b"\n".join(made)], [*made, *made]):
        keys = public_keys(given)
        assert len(keys) == 2
        for name in ("old", "new"):
            assert opened(signed(FACTS, signer_from(tmp_path / name)), keys) == FACTS
    with pytest.raises(Invalid, match="none of those given"):
        opened(signed(FACTS, signer_from(tmp_path / "new")), public_keys(made[:1]))


@pytest.mark.parametrize(
    ("data", "mode", "reason"),
    [
        (None, 0o600, "is not there"),
        (b"planted-secret", 0o600, "not a private key"),
        (EC_PRIVATE, 0o600, "not one of Ed25519"),
        (b"planted-secret" * 1000, 0o600, "is larger than"),
        (b"planted-secret", 0o640, "others may read"),
        (b"planted-secret", 0o604, "others may read"),
    ],
    ids=["missing", "other text", "other kind", "large", "group", "others"],
)
def test_a_wrong_private_key_is_refused_without_its_words(tmp_path: Path, data: Any, mode: int, reason: str) -> None:
    path = tmp_path / "key.pem"
    if data is not None:
        path.write_bytes(data)
        path.chmod(mode)
    with pytest.raises(Misconfigured, match=reason) as caught:
        signer_from(path)
    assert "planted" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("pem", "reason"),
    [(b"", "not a public key"), (EC_PRIVATE, "not a public key"), (EC_PUBLIC, "not one of Ed25519")],
    ids=["empty", "private", "other kind"],
)
def test_what_is_no_public_key_of_ed25519_is_refused(pem: bytes, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        public_keys([pem])
