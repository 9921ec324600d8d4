"""Did a party garble a false circuit? Whoever has the certificate and the keys can tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmq.errors import ConfigError, DataError
from fedmq.party.configuration.federation import Federation
from fedmq.party.store.certificates import Certificate
from fedmq.privacy.hidden_sums.proof import CopyProof
from fedmq.protocol.session_records import signer_statement

__all__ = ["check_certificate"]


def check_certificate(certificate: Certificate, federation: Federation) -> Mapping[str, Any]:
    """What the certificate proves, as plain data: who garbled a false circuit, and where.

    Raises:
        ConfigError: the federation file has no key of the party.
        DataError: it proves nothing.
    """
    passive = certificate.passive
    if passive not in federation.passive or not (keys := federation.pinned(passive)):
        raise ConfigError(
            f"{federation.name}: the federation file has no key of {passive}, so nothing binds the "
            "party to what it said; give the file of the time of the training"
        )
    proof = CopyProof.from_bytes(certificate.proof)
    parties = (certificate.active, passive)
    signed = signer_statement(certificate.session, certificate.attempt, *parties, proof.signer)
    if not any(key.verifies(signed, proof.endorsement) for key in keys):
        raise DataError(
            f"it proves nothing: {passive} has not signed it with a key of the federation file; if "
            "keys changed since, give the file of that time"
        )
    proof.check()
    return {
        "party": passive,
        "active": certificate.active,
        "session": certificate.session,
        "attempt": certificate.attempt,
        "copies": proof.level.count,
        "copy": proof.copy,
        "parcel": len(proof.said) - 1,
    }
