"""The certificate authority of a run's proxy. It vouches for hosts with credentials, to the run's own commands alone.

Its keys are made with the run and are in the memory of this process only.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLObject, SSLSocket

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from .targets import Target

_PLACES = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    *("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"),
)
"""Where distributions keep the authorities that commands would trust without this one."""
_UNRECOGNIZED_NAME = 112
"""By its number in TLS."""
_VALID = timedelta(days=30)
_LATE = timedelta(days=1)
"""What a clock may be wrong by."""

_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """The authority of one run."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "deputize: the proxy of one run")])
        built = self._builder(self._name, self._key.public_key())
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = built.add_extension(_SIGNS, critical=True).sign(self._key, SHA256())
        self._contexts: dict[str, SSLContext] = {}

    @property
    def trusted(self) -> bytes:
        """What commands have to trust, in PEM: this authority, and those of the system."""
        return self._certificate.public_bytes(Encoding.PEM) + system_authorities()

    def context(self, where: Target) -> SSLContext:
        """Returns what ends the TLS of a host. Its clients have to name that host, or none."""
        if where.host not in self._contexts:
            self._contexts[where.host] = self._context(where)
        return self._contexts[where.host]

    def _context(self, where: Target) -> SSLContext:
        def check_name(_: SSLSocket | SSLObject, name: str | None, __: SSLContext) -> int | None:
            is_right = name is None or name.lower().removesuffix(".") == where.host
            return None if is_right else _UNRECOGNIZED_NAME

        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = check_name
        self._load(context, where)
        return context

    def _load(self, context: SSLContext, where: Target) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        own = x509.IPAddress(where.address) if where.address else x509.DNSName(where.host)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a host with credentials")])
        built = self._builder(name, key.public_key())
        built = built.add_extension(x509.SubjectAlternativeName([own]), critical=False)
        built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # The library takes keys from files only; this one is in memory.
        file = os.memfd_create("key")
        try:
            os.write(file, pem + built.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - _LATE)
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer, critical=False)
        )


@cache
def system_authorities() -> bytes:
    """Returns the authorities of this machine, in PEM."""
    return next((path.read_bytes() for path in map(Path, _PLACES) if path.is_file()), b"")
