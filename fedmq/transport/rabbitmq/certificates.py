"""A private certificate authority for one broker and its users: PEM bytes, no I/O.

RabbitMQ takes a user's name from the common name of its certificate (mechanism EXTERNAL), so there
is no password to lose. A party sends a certificate request; its private key never leaves its
machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedmq.errors import ConfigError

__all__ = [
    "DAYS",
    "Authority",
    "Certificate",
    "common_name",
    "expiry",
    "fits",
    "new_request",
    "read_request",
    "validity",
]

DAYS = 730
"""Default validity of a certificate of a broker or a party, in days."""

_DAYS_OF_AUTHORITY = 3650

_BACKDATED = timedelta(days=7)
"""A new certificate is good for a user whose clock is so far behind."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, both PEM; ``repr`` shows neither."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Certificate(...)"


class Authority:
    """Signs with an ECDSA key on P-256, which every TLS 1.2 and 1.3 library reads."""

    def __init__(self, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str) -> Self:
        """A new authority. Its certificate is the one that broker and users trust."""
        key = generate_private_key(SECP256R1())
        subject = _name(name)
        builder = (
            _builder(subject, subject, key.public_key(), _DAYS_OF_AUTHORITY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(builder.sign(key, SHA256()), key)

    @classmethod
    def load(cls, pem: Certificate) -> Self:
        """The authority in ``pem``; ConfigError if ``pem`` holds no authority."""
        try:
            key = load_pem_private_key(pem.key, password=None)
            certificate = x509.load_pem_x509_certificate(pem.certificate)
        except ValueError as error:
            raise ConfigError(f"the file holds no certificate authority: {error}") from None
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ConfigError("the file holds no certificate authority of fedmq")
        return cls(certificate, key)

    @property
    def pem(self) -> Certificate:
        """The authority's own certificate and key. The key stays with the broker's operator."""
        return Certificate(_pem(self._certificate), _key_pem(self._key))

    def server(self, hosts: Sequence[str]) -> Certificate:
        """A broker's certificate for these host names and addresses."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str) -> Certificate:
        """The certificate with which ``user`` logs in."""
        names = x509.SubjectAlternativeName([x509.DNSName(user)])
        return self._issue(user, ExtendedKeyUsageOID.CLIENT_AUTH, names)

    def sign(self, request: bytes, user: str, days: int = DAYS) -> bytes:
        """The certificate, good for ``days``, for which ``user`` asks in ``request`` (PEM).

        Raises:
            ConfigError: it is no certificate request of ``user``.
        """
        names = x509.SubjectAlternativeName([x509.DNSName(user)])
        public = read_request(request, user).public_key()
        return self._certify(user, ExtendedKeyUsageOID.CLIENT_AUTH, names, public, days)

    def renewed(self, certificate: bytes, days: int = DAYS) -> bytes:
        """``certificate`` (PEM), of this authority, for the same key and names, for ``days`` more.

        Raises:
            ConfigError: it is none of this authority's.
        """
        try:
            old = x509.load_pem_x509_certificate(certificate)
            old.verify_directly_issued_by(self._certificate)
            names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            usages = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            raise ConfigError("this authority did not sign the certificate") from None
        name = str(old.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        return self._certify(name, next(iter(usages)), names, old.public_key(), days)

    def _issue(
        self, name: str, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName
    ) -> Certificate:
        key = generate_private_key(SECP256R1())
        return Certificate(self._certify(name, usage, names, key.public_key(), DAYS), _key_pem(key))

    def _certify(
        self,
        name: str,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName,
        public: Any,
        days: int,
    ) -> bytes:
        builder = (
            _builder(_name(name), self._certificate.subject, public, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(names, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        return _pem(builder.sign(self._key, SHA256()))


def validity(der: bytes) -> tuple[datetime, datetime] | None:
    """The begin and the end of the certificate ``der``; None if it is no certificate."""
    try:
        found = x509.load_der_x509_certificate(der)
    except ValueError:
        return None
    return found.not_valid_before_utc, found.not_valid_after_utc


def expiry(pem: bytes) -> datetime | None:
    """The expiry of the certificate ``pem``; None if it is no certificate."""
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return None


def common_name(pem: bytes) -> str | None:
    """The common name in the certificate ``pem``: RabbitMQ's user; None if missing."""
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
    except ValueError:
        return None
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else None


def _builder(
    subject: x509.Name, issuer: x509.Name, public: Any, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_request(user: str) -> tuple[bytes, bytes]:
    """A certificate request (PKCS #10) of ``user``, and its new private key on P-256."""
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return request.public_bytes(Encoding.PEM), private


def read_request(pem: bytes, user: str) -> x509.CertificateSigningRequest:
    """The request in ``pem``; ConfigError if it is none, or not of ``user`` and its own key."""
    try:
        request = x509.load_pem_x509_csr(pem)
        names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        whole = request.is_signature_valid
    except (ValueError, InvalidSignature):
        raise ConfigError("the data is no certificate request") from None
    if not whole or [name.value for name in names] != [user]:
        raise ConfigError(f"the certificate request is not of {user}")
    return request


def fits(certificate: bytes, key: bytes) -> bool:
    """Whether ``certificate`` is for the public half of ``key``; both PEM."""
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        private = load_pem_private_key(key, password=None)
    except ValueError:
        return False
    return bool(public == private.public_key())
