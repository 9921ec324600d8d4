"""What a party sends to have its certificate signed: its private key stays with it. PEM, no I/O."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from fedmq.errors import ConfigError

__all__ = ["fits", "new_request", "read_request"]


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
        raise ConfigError("that is no certificate request") from None
    if not whole or [name.value for name in names] != [user]:
        raise ConfigError(f"that is no certificate request of {user}")
    return request


def fits(certificate: bytes, key: bytes) -> bool:
    """Whether ``certificate`` is for the public half of ``key``; both PEM."""
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        private = load_pem_private_key(key, password=None)
    except ValueError:
        return False
    return bool(public == private.public_key())
