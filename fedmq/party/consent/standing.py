"""Is a session alike to one that the owner has agreed to for all times?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from fedmq.party.configuration.standing_consent import StandingConsent
from fedmq.party.consent.requested_terms import RequestedTerms

__all__ = ["covers", "standing_consent", "toml_of"]

_SIZES: Mapping[str, str] = {
    "most_rows": "rows",
    "most_trees": "trees",
    "most_depth": "max_depth",
    "most_bins": "max_bin",
    "most_gradient_bits": "gradient_bits",
}
"""Which bound is about which of the terms."""


def covers(standing: StandingConsent, asked: RequestedTerms) -> bool:
    """Whether ``asked`` needs no other yes: the same kind of thing, and nothing of it is more."""
    if (standing.peer, standing.session) != (asked.peer, asked.kind):
        return False
    terms = asked.details
    if asked.kind == "alignment":
        return (standing.alignment, list(standing.parties)) == (asked.name, terms["parties"])
    return (
        (standing.alignment, standing.engine) == (terms["alignment"], terms["engine"])
        and all(terms[term] <= getattr(standing, bound) for bound, term in _SIZES.items())
        and set(terms["particulars"]) <= set(standing.particulars)
    )


def standing_consent(asked: RequestedTerms) -> StandingConsent:
    """The smallest that covers ``asked``."""
    terms = asked.details
    if asked.kind == "alignment":
        return StandingConsent(
            peer=asked.peer, session="alignment", alignment=asked.name, parties=terms["parties"]
        )
    return StandingConsent(
        peer=asked.peer,
        session="training",
        alignment=terms["alignment"],
        engine=terms["engine"],
        particulars=terms["particulars"],
        **{bound: terms[term] for bound, term in _SIZES.items()},
    )


def toml_of(standing: StandingConsent) -> str:
    """It as an entry of ``[[policy.approved]]``; what is left out has its default."""
    return "\n".join(["[[policy.approved]]", *_lines(standing)]) + "\n"


def _lines(standing: StandingConsent) -> Iterator[str]:
    for key, value in standing.model_dump(mode="json", exclude_defaults=True).items():
        # Strings, numbers and lists of strings are written alike in JSON and TOML.
        yield f"{key} = {json.dumps(value)}"
