"""The keys of a fleet's proofs: a folder with two files of each, and the public ones that a verifier has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, SSlibKey  # pyright: ignore[reportPrivateImportUsage]

from ..errors import Invalid, Misconfigured
from ..settings.files import secret_bytes

_SETTING = "proof_keys"
_PUBLIC = re.compile(
    rb"\s*(?:expires: (?P<expires>\S+)\s+)?(?P<pem>-----BEGIN PUBLIC KEY-----[\s\w+/=]+-----END PUBLIC KEY-----)"
)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, whose id follows from its bytes. ``expires`` is the last day on which it is accepted."""

    key: SSlibKey
    expires: date | None = None

    @property
    def id(self) -> str:
        return self.key.keyid

    @property
    def is_expired(self) -> bool:
        return self.expires is not None and self.expires < datetime.now(UTC).date()


def make_key(folder: Path, expires: date | None = None) -> Path:
    """Writes a new key, which signs from now on, and returns its private file, which only its owner may read."""
    signer = CryptoSigner.generate_ed25519()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    private = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{signer.public_key.keyid[:12]}.pem"
    with os.fdopen(os.open(private, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(signer.private_bytes)
        file.flush()
        os.fsync(file.fileno())
    key = load_pem_private_key(signer.private_bytes, None).public_key()
    text = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    private.with_suffix(".pub").write_text((f"expires: {expires}\n" if expires else "") + text, "ascii")
    return private


def keys_in(folder: Path) -> dict[Path, PublicKey]:
    """Returns the keys of a folder by their private files, of which some may be gone, the newest one last.

    Raises Misconfigured for a public file that is none.
    """
    try:
        found = {path: public_keys([path.read_bytes()]) for path in sorted(folder.glob("*.pub"))}
        return {path.with_suffix(".pem"): key for path, (key,) in found.items()}
    except (Invalid, ValueError, OSError) as error:
        raise Misconfigured(f"{_SETTING}: {folder} has a file .pub that is not one public key: {error}") from None


def signing(keys: dict[Path, PublicKey]) -> Path | None:
    """Returns the private file of the newest key that is not expired."""
    return next((path for path, key in reversed(keys.items()) if path.exists() and not key.is_expired), None)


def signer_in(folder: Path) -> CryptoSigner | None:
    """Returns what signs; None where no key does. Raises Misconfigured, whose text has nothing of the file."""
    path = signing(keys := keys_in(folder))
    if path is None:
        return None
    try:
        key = load_pem_private_key(secret_bytes(path, _SETTING), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Misconfigured(f"{_SETTING}: {path} is not a private key in PEM format without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Misconfigured(f"{_SETTING}: {path} is not a key of Ed25519")
    signer = CryptoSigner(key)
    if signer.public_key.keyid != keys[path].id:
        raise Misconfigured(f"{_SETTING}: {path} and the file .pub beside it are of two keys")
    return signer


def public_keys(texts: Sequence[bytes]) -> list[PublicKey]:
    """Returns the public keys, each once, of texts that may have several. Raises Invalid."""
    return [*{key.id: key for text in texts for key in _public_keys(text)}.values()]


def _public_keys(text: bytes) -> Iterator[PublicKey]:
    at = 0
    while found := _PUBLIC.match(text, at):
        at = found.end()
        try:
            key = load_pem_public_key(found["pem"])
            until = date.fromisoformat(found["expires"].decode()) if found["expires"] else None
        except (ValueError, UnsupportedAlgorithm):
            raise Invalid("not a public key in PEM format, or no date after `expires:`") from None
        if not isinstance(key, Ed25519PublicKey):
            raise Invalid("the public key is not one of Ed25519")
        yield PublicKey(SSlibKey.from_crypto(key), until)
    if not at or text[at:].strip():
        raise Invalid("not a public key in PEM format, or a line beside it that is not `expires: YYYY-MM-DD`")
