"""A certificate authority of a test's own, and certificates that it issues."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """An authority with its certificate at ``path``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        uses = dict.fromkeys(
            ("key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
        )
        sign = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_cert_sign=True, crl_sign=True, **uses
        )
        made = (
            self._certificate(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(sign, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, host: str) -> Path:
        """A file with a certificate for the host, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        of_host = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        made = (
            self._certificate(name, key)
            .add_extension(x509.SubjectAlternativeName([of_host]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        path = self._folder / f"{host}.pem"
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
        return path

    def _certificate(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
        )
