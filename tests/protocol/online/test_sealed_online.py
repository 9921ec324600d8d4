"""Sealed online scores are those of mode hop but for the last digits, and one number each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import AnswerRefused, PeerAway, PeerSilent, ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.online import OnlineRefusal, OnlineSealed
from fedmq.privacy.sealed_scores import machine_ring
from fedmq.privacy.sealed_scores.ciphertexts import Answered
from fedmq.privacy.sealed_scores.parameters import BLOCKS
from fedmq.protocol.events import Answer, Received, RunPlan, Send, Start
from fedmq.protocol.machine import run_inline
from fedmq.protocol.online import sealed_active
from fedmq.protocol.online.options import AskedRows, Timeouts
from fedmq.protocol.online.passive import AnsweringShare
from fedmq.protocol.online.sealed_active import SealedBatch
from fedmq.protocol.online.sealed_passive import SealedShare
from fedmq.protocol.sealed_sums import open_sums
from tests.how_often import seldom
from tests.protocol.online.online_schedule import OnlineSchedule
from tests.protocol.online.sealed_parties import Multiplying, Sealing
from tests.protocol.online.test_online import BAD, World, usual_world
from tests.simulator import Link

ALIKE = 2**-20


@pytest.fixture(scope="module")
def sealing() -> Sealing:
    return Sealing(usual_world())


def check_alike(margins: np.ndarray, exact: np.ndarray) -> None:
    assert np.abs(margins - exact).max() <= ALIKE * np.abs(exact).max()


def test_scores_are_those_of_mode_hop_over_a_link_that_loses_repeats_and_reorders(
    sealing: Sealing,
) -> None:
    parts = [np.arange(40), np.array([500]), np.arange(200, 260)]
    requests = [AskedRows(0, 1, 60.0), AskedRows(1, 25, 60.0), AskedRows(25, 40, 60.0)]
    batches = [
        sealing.batch(rows, requests if len(rows) == 40 else None, number=number)
        for number, rows in enumerate(parts)
    ]

    answers = OnlineSchedule(batches, sealing.parties(), 3, BAD, slow_work=0.01).run()

    for number, rows in enumerate(parts):
        found = [answers[number, part].margins for part in range(3 if number == 0 else 1)]
        check_alike(np.concatenate(found), sealing.world.margins[rows])


@pytest.mark.parametrize(
    "params",
    [
        {"objective": "multi:softprob", "num_class": 3},
        *seldom(
            {
                "objective": "multi:softprob",
                "num_class": 3,
                "multi_strategy": "multi_output_tree",
            },
            {"booster": "dart", "rate_drop": 0.5},
        ),
    ],
    ids=str,
)
def test_scores_of_other_models_are_those_of_mode_hop(params: dict[str, Any]) -> None:
    sealing = Sealing(World(rows=200, trees=3, **params))
    answers = OnlineSchedule([sealing.batch(np.arange(30))], sealing.parties()).run()
    check_alike(answers[0, 0].margins, sealing.world.margins[:30])
    assert answers[0, 0].predictions.shape == answers[0, 0].margins.shape


def test_people_share_ciphertexts_and_each_party_is_asked_once(sealing: Sealing) -> None:
    parties = sealing.parties()
    count = sealing.model.packing.rows
    assert count > 20
    OnlineSchedule([sealing.batch(np.arange(count))], parties).run()
    assert [len(party.asked) for party in parties.values()] == [1, 1]


def test_a_person_in_several_requests_is_asked_about_once(sealing: Sealing) -> None:
    rows, parties = np.array([7, 9, 7, 7]), sealing.parties()
    requests = [AskedRows(0, 2, 60.0), AskedRows(2, 3, 60.0), AskedRows(3, 4, 60.0)]
    answers = OnlineSchedule([sealing.batch(rows, requests)], parties).run()
    found = np.concatenate([answers[0, request].margins for request in range(3)])
    check_alike(found, sealing.world.margins[rows])
    assert [party.asked[0].ids for party in parties.values()] == [("P7", "P9")] * 2


def test_few_questions_are_under_way_at_once(
    sealing: Sealing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_active, "_QUESTIONS_AT_ONCE", 2)
    batch, most = sealing.batch(np.arange(600)), 0
    schedule = OnlineSchedule([batch], sealing.parties(), link=Link(delay=0.02), slow_work=0.01)
    feed = schedule._feed

    def watched(number: int, event: Any) -> None:
        nonlocal most
        feed(number, event)
        most = max(most, len(batch._open))

    monkeypatch.setattr(schedule, "_feed", watched)
    answers = schedule.run()
    assert most == 2
    check_alike(answers[0, 0].margins, sealing.world.margins)


def test_base_margins_are_where_rows_start(sealing: Sealing) -> None:
    first = np.linspace(-3, 3, 10, dtype=np.float32)
    request = AskedRows(0, 10, 60.0, base_margin=first)
    answers = OnlineSchedule([sealing.batch(np.arange(10), [request])], sealing.parties()).run()
    without = OnlineSchedule([sealing.batch(np.arange(10))], sealing.parties()).run()
    start = sealing.world.served.first_margin
    np.testing.assert_allclose(
        answers[0, 0].margins - first, without[0, 0].margins - start, atol=1e-5
    )


def test_an_id_that_a_party_does_not_know_is_named(sealing: Sealing) -> None:
    shares = dict(sealing.world.shares)
    telco = shares["telco"]
    known = {name: row for name, row in telco.row_of.items() if name != "P3"}
    shares["telco"] = AnsweringShare(telco.share, telco.chains, telco.values, known)
    answers = OnlineSchedule([sealing.batch(np.arange(6))], sealing.parties(shares)).run()
    table = np.hstack(list(sealing.world.columns.values()))[:6].copy()
    table[3, 3:6] = np.nan
    check_alike(answers[0, 0].margins, sealing.world.xgboost_margins(table))
    assert answers[0, 0].unknown["telco"].tolist() == [False] * 3 + [True] + [False] * 2


@pytest.mark.skipif(not machine_ring.can_compute(), reason="llvmlite is not installed")
def test_what_takes_less_than_a_millisecond_is_one_ciphertext_in_machine_code(
    sealing: Sealing, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_ring.translate()
    most, few = sealing.model.packing.rows, sealing.batch(np.arange(2))
    assert few.is_brief
    assert not sealing.batch(np.arange(most)).is_brief
    parties = sealing.parties()
    OnlineSchedule([few, sealing.batch(np.arange(most), number=1)], parties).run()
    for party in parties.values():
        assert sorted(map(SealedShare.is_brief, party.asked)) == [False, True]
    monkeypatch.setattr(sealed_active, "is_translated", lambda: False)
    assert not sealing.batch(np.arange(2)).is_brief


# Parties that are away


def test_a_party_that_is_known_to_be_away_ends_requests_at_once(sealing: Sealing) -> None:
    batch = sealing.batch(np.arange(3), away={"retail": "retail is away"})
    answers = OnlineSchedule([batch], sealing.parties()).run()
    error = answers[0, 0]
    assert isinstance(error, PeerAway)
    assert error.parties == {"retail"}


@pytest.mark.parametrize("away", [None, 0.5])
def test_a_party_that_is_silent_is_named_at_the_deadline_or_when_it_is_given_up(
    sealing: Sealing, away: float | None
) -> None:
    batch = sealing.batch(
        np.arange(3), [AskedRows(0, 3, 2.0)], timeouts=Timeouts(ask_again=0.1, away=away)
    )
    schedule = OnlineSchedule([batch], sealing.parties(), away={"retail": (0.0, 60.0)})
    error = schedule.run()[0, 0]
    assert isinstance(error, PeerSilent)
    assert error.parties == {"retail"}
    assert batch.silent == {"retail"}
    assert schedule.answered_at[0, 0] == pytest.approx(2.0 if away is None else away, abs=0.1)


def test_a_party_that_is_restarted_goes_on_answering(sealing: Sealing) -> None:
    away = {"telco": (0.002, 0.7)}
    batch = sealing.batch(np.arange(100))
    answers = OnlineSchedule([batch], sealing.parties(), away=away).run()
    check_alike(answers[0, 0].margins, sealing.world.margins[:100])


# Answers that do not fit


def following(batch: SealedBatch, event: Any) -> list[Send | Answer]:
    """What is sent and answered after ``event``, with all arithmetic done at once."""
    found, events = [], [event]
    while events:
        for effect in batch.handle(events.pop()):
            if isinstance(effect, RunPlan):
                events.append(run_inline(effect))
            elif isinstance(effect, Send | Answer):
                found.append(effect)
    return found


def test_answers_that_do_not_fit_change_nothing(sealing: Sealing) -> None:
    batch, parties = sealing.batch(np.arange(2)), sealing.parties()
    (asked,) = following(batch, Start())
    assert isinstance(asked, Send)
    assert isinstance(asked.body, OnlineSealed)
    right = parties[asked.recipient].products(asked.body)
    few = right.numbers.values[..., :BLOCKS]
    others = sorted(sealing.world.shares.keys() - {asked.recipient})
    wrong = [
        (others[0], {}, "answers a question to another party"),
        (asked.recipient, {"mask": b""}, "a mask that fits no place"),
        (asked.recipient, {"numbers": Array.of(few)}, "another size"),
        (asked.recipient, {"numbers": Array.of(right.numbers.values[0])}, "do not pair up"),
        (asked.recipient, {"unknown": Array.of(np.array([2], np.uint32))}, "unrequested ids"),
        (
            asked.recipient,
            {name: Array.of(np.repeat(getattr(right, name).values, 2, axis=0))
             for name in ("masks", "numbers")},
            "2 products, not as many as were asked",
        ),
    ]  # fmt: skip
    for sender, changed, reason in wrong:
        with pytest.raises(ProtocolError, match=reason):
            batch.handle(Received(sender, right.model_copy(update=changed)))
        batch.check()
    (again,) = following(batch, Received(asked.recipient, right))
    assert isinstance(again, Send)
    assert isinstance(again.body, OnlineSealed)
    assert following(batch, Received(asked.recipient, right)) == []  # a repetition
    last = parties[again.recipient].products(again.body)
    (answer,) = following(batch, Received(again.recipient, last))
    assert isinstance(answer, Answer)
    check_alike(answer.result.margins, sealing.world.margins[:2])


def test_a_refusal_ends_the_requests_and_names_the_party(sealing: Sealing) -> None:
    batch = sealing.batch(np.arange(2), [AskedRows(0, 1, 9.0), AskedRows(1, 2, 9.0)])
    (asked,) = following(batch, Start())
    assert isinstance(asked, Send)
    refusal = OnlineRefusal(batch=0, hop=asked.body.hop, cause="rate", reason="enough")
    answers = following(batch, Received(asked.recipient, refusal))
    assert len(answers) == 2
    for answer in answers:
        assert isinstance(answer, Answer)
        assert isinstance(answer.result, AnswerRefused)
        assert f"{asked.recipient} refused: enough" in str(answer.result)


# Masks


def test_the_same_question_has_the_same_answer_and_any_other_has_other_masks(
    sealing: Sealing,
) -> None:
    (asked,) = following(sealing.batch(np.arange(2)), Start())
    assert isinstance(asked, Send)
    party, body = sealing.parties()[asked.recipient], asked.body
    first = party.products(body)
    assert party.products(body) == first
    labels = {first.mask[16:]}
    altered = body.words.values.copy()
    altered[0, 0, 0] ^= np.uint64(1)
    for changed in (
        {"words": Array.of(altered)},
        {"seeds": (b"x" * 32,)},
        {"ids": body.ids[::-1]},
        {"ids": ("P8", "P9")},
        {"batch": body.batch + 1},
        {"hop": body.hop + 1},
    ):
        labels.add(party.products(body.model_copy(update=changed)).mask[16:])
    assert len(labels) == 7
    # Other values of a person: under the old mask the difference of two answers would tell them.
    values = party.answering.values.copy()
    values[0] *= -5
    party.answering = AnsweringShare(
        party.answering.share, party.answering.chains, values, party.answering.row_of
    )
    assert party.products(body).mask[16:] not in labels


def test_a_mask_is_taken_out_of_nobody_elses_question(sealing: Sealing) -> None:
    """Whoever hands on the name of a mask with other people's ids reads their bits nowhere."""
    parties, rows = sealing.parties(), np.arange(2)
    batch = sealing.batch(rows)
    (asked,) = following(batch, Start())
    assert isinstance(asked, Send)
    answer = parties[asked.recipient].products(asked.body)
    (again,) = following(batch, Received(asked.recipient, answer))
    assert isinstance(again, Send)
    last, body = parties[again.recipient], again.body

    def told(party: Multiplying, ids: tuple[str, ...]) -> np.ndarray:
        told = party.products(body.model_copy(update={"ids": ids}))
        parts = zip(told.masks.values, told.numbers.values, strict=True)
        return open_sums(sealing.model, [Answered(*part) for part in parts], 2)

    others = told(last, ("P8", "P9"))
    own = last.answering
    last.answering = AnsweringShare(own.share, own.chains, own.values, {"P0": 8, "P1": 9})
    assert np.abs(told(last, body.ids) - others).min() > 0.01
