"""The broker's operator repeats what it recorded before a party restarted: offers, and sessions."""

from __future__ import annotations

import pytest

from fedmq import __version__
from fedmq.errors import MessageError, Replayed, Stale
from fedmq.party.identity.handshakes import _ANSWERED, _HEARD
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.transport.sealing.keys import PrivateKeys
from tests.party.sealed_parties import envelope, shake_hands

RINGS = {party: KeyRing(party, PrivateKeys.generate()) for party in ("bank", "telco")}
PINNED = {party: (ring.current.public,) for party, ring in RINGS.items()}


def started(party: str) -> EndToEnd:
    """A daemon that has just begun: it knows its keys, and nothing of earlier handshakes."""
    return EndToEnd(RINGS[party], PINNED)


def offers(count: int) -> list[bytes]:
    bank = started("bank")
    return [bank.offer("demo", "telco") for _ in range(count)]


def test_an_honest_offer_is_confirmed_behind_hundreds_of_repetitions() -> None:
    bank, telco = started("bank"), started("telco")
    answers: list[bytes] = []
    confirmations: list[bytes] = []
    telco.connect_by(lambda _, data: answers.append(data))
    bank.connect_by(lambda _, data: confirmations.append(data))
    telco.open(bank.offer("demo", "telco"))
    honest = answers[0]
    for recorded in offers(300):
        telco.open(recorded)

    assert bank.open(honest) is None
    assert telco.open(confirmations[0]) is None

    assert bank.open(telco.seal(envelope("telco", "bank"))) == envelope("telco", "bank")
    assert telco.open(bank.seal(envelope())) == envelope()
    assert _ANSWERED >= _HEARD  # no fewer offers are kept than are known to be repetitions


def test_answers_to_repeated_offers_lead_nowhere() -> None:
    bank, telco = started("bank"), started("telco")
    answers: list[bytes] = []
    recorded = offers(20)
    shake_hands(bank, telco)
    telco.connect_by(lambda _, data: answers.append(data))
    for offer in recorded:
        telco.open(offer)
        with pytest.raises(Replayed):
            telco.open(offer)
    for answer in answers:
        with pytest.raises(MessageError, match="does not expect"):
            bank.open(answer)

    assert len(answers) == 20
    assert telco.open(bank.seal(envelope())) == envelope()


def test_an_offer_of_an_earlier_release_is_believed_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as before_it_was_brought_up_to_date:
        before_it_was_brought_up_to_date.setattr(
            "fedmq.party.identity.sealer._SAYS", " fedmq/0.1.0"
        )
        recorded, another = offers(2)
    bank, telco = started("bank"), started("telco")
    telco.connect_by(lambda _, __: None)
    telco.open(recorded)
    assert telco.releases == {}  # whoever made the offer has not yet been heard

    shake_hands(bank, telco)
    telco.open(another)
    assert telco.releases == {"bank": __version__}


def test_a_session_with_all_its_handshakes_is_not_taken_again_by_parties_that_restart() -> None:
    sessions = ("s1", "s2", "s3")
    recorded: list[bytes] = []
    for session in sessions:
        bank, telco = started("bank"), started("telco")
        offer = bank.offer("demo", "telco")
        answers: list[bytes] = []
        telco.connect_by(lambda _, data, kept=answers: kept.append(data))
        bank.connect_by(lambda _, data: recorded.append(data))
        recorded.append(offer)
        telco.open(offer)
        bank.open(answers[0])
        telco.open(recorded[-1])
        for sequence in (1, 2):
            recorded.append(bank.seal(envelope(session=session, sequence=sequence)))
            assert telco.open(recorded[-1]) is not None
            with pytest.raises(Replayed):
                telco.open(recorded[-1])

    bank, telco = started("bank"), started("telco")
    shake_hands(bank, telco)
    telco.connect_by(lambda _, __: None)
    taken, stale = [], 0
    for data in recorded * 2:
        try:
            taken.append(telco.open(data))
        except Stale:
            stale += 1
        except Replayed:
            continue
    assert set(taken) == {None}  # offers, whose answers the bank does not expect
    assert stale == 2 * 3 * len(sessions)
    assert telco.open(bank.seal(envelope())) == envelope()
