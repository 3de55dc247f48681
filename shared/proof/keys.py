"""The key that signs proofs, and the public keys that are accepted: one file each, in PEM."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, SSlibKey  # pyright: ignore[reportPrivateImportUsage]

from ..errors import Invalid, Misconfigured
from ..settings.files import regular_bytes

_MAX_KEY = 10_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_key(path: Path) -> tuple[str, str]:
    """Writes a new private key that only its owner may read, and returns its id and the public key in PEM.

    Raises FileExistsError where there is a file: proofs of that key could not be signed any more.
    """
    signer = CryptoSigner.generate_ed25519()
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(signer.private_bytes)
        file.flush()
        os.fsync(file.fileno())
    return signer.public_key.keyid, _public_pem(signer)


def signer_from(path: Path) -> CryptoSigner:
    """Returns what signs with this private key. Raises Misconfigured, whose text has nothing of the file."""
    data = regular_bytes(path, _MAX_KEY)
    if data is None:
        raise Misconfigured(f"the signing key {path} is not there, or not a regular file")
    if path.stat().st_mode & _OTHERS:
        raise Misconfigured(f"others may read the signing key {path}; chmod 600 it")
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError):
        raise Misconfigured(f"{path} is not a private key in PEM format without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Misconfigured(f"the signing key {path} is not one of Ed25519")
    return CryptoSigner(key)


def public_keys(pems: Sequence[bytes]) -> list[SSlibKey]:
    """Returns the public keys, each once, of texts that may have several. Raises Invalid."""
    end = b"-----END PUBLIC KEY-----"
    found: dict[str, SSlibKey] = {}
    for pem in pems:
        *parts, rest = pem.split(end)
        if not parts or rest.strip():
            raise Invalid("not a public key in PEM format")
        for part in parts:
            key = _public_key(part + end)
            found[key.keyid] = key
    return [*found.values()]


def _public_key(pem: bytes) -> SSlibKey:
    """Returns the public key, whose id follows from its bytes. Raises Invalid where it is none of Ed25519."""
    try:
        key = load_pem_public_key(pem)
    except ValueError:
        raise Invalid("not a public key in PEM format") from None
    if not isinstance(key, Ed25519PublicKey):
        raise Invalid("the public key is not one of Ed25519")
    return SSlibKey.from_crypto(key)


def _public_pem(signer: CryptoSigner) -> str:
    key = load_pem_private_key(signer.private_bytes, None)
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
