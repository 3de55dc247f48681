"""Two keys, and the public half of one as a verifier has it."""

from __future__ import annotations

from datetime import date

from securesystemslib.signer import CryptoSigner, SSlibKey  # pyright: ignore[reportPrivateImportUsage]

from deputize.shared.proof.keys import PublicKey

SIGNER = CryptoSigner.generate_ed25519()
OTHER = CryptoSigner.generate_ed25519()


def public(signer: CryptoSigner, expires: date | None = None) -> PublicKey:
    key = signer.public_key
    assert isinstance(key, SSlibKey)
    return PublicKey(key, expires)
