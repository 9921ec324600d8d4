"""Sealed scores from the scorer to the answering parties, which hide their answers by masks."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from fedmq.boosting.model.tree import Agreed
from fedmq.errors import DataError, PeerSilent, Refused
from fedmq.messages.online import OnlineMaskAsk, OnlineMasks, OnlineProducts, OnlineSealed
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online import model_loader, scoring
from fedmq.party.online.answering import Answering
from fedmq.party.online.model_loader import ModelLoader
from fedmq.privacy.sealed_scores import machine_ring
from fedmq.protocol.online import sealed_active, sealed_passive
from tests.party.online.serving_harness import ACTIVE, ServingHarness
from tests.protocol.online.test_online import World, usual_world

ALIKE = 2**-20


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


def check_alike(world: World, margins: np.ndarray, rows: np.ndarray | slice) -> None:
    scale = np.abs(world.margins).max()
    assert np.abs(margins - world.margins[rows]).max() <= ALIKE * scale


async def test_concurrent_requests_share_ciphertexts_and_get_their_own_scores(
    world: World,
) -> None:
    harness = ServingHarness(world, mode="sealed", drop=0.1, delay=0.01, deadline=30.0)
    random = np.random.default_rng(1)
    asked = [random.choice(600, size=size) for size in random.integers(1, 4, 30)]

    got = await asyncio.gather(*(harness.margins([world.ids[r] for r in rows]) for rows in asked))

    for rows, margins in zip(asked, got, strict=True):
        check_alike(world, margins, rows)
    assert harness.scorer.batcher.counts.batches < 15


async def test_two_sealed_batches_are_under_way_at_once_and_later_requests_join(
    world: World,
) -> None:
    harness = ServingHarness(world, mode="sealed", delay=0.02, window=0.0, deadline=30.0)
    batcher, under_way = harness.scorer.batcher, set()
    asked = []
    for row in range(12):
        asked.append(asyncio.create_task(harness.margins([world.ids[row]])))
        await asyncio.sleep(0.01)
        under_way.add(batcher.under_way)
    check_alike(world, np.concatenate(await asyncio.gather(*asked)), slice(0, 12))
    assert max(under_way) == 2
    assert batcher.counts.batches < 12


async def test_a_party_is_asked_once_and_its_neighbour_once_for_a_seed(world: World) -> None:
    harness = ServingHarness(world, mode="sealed", ask_again=9.0, deadline=9.0)
    between: list[object] = []
    carry = harness._carry

    def watched(sender: str, recipient: str, body: object, session: str) -> None:
        if isinstance(body, OnlineMaskAsk | OnlineMasks):
            between.append((sender, recipient, type(body)))
        carry(sender, recipient, body, session)  # type: ignore[arg-type]

    harness._carry = watched  # type: ignore[method-assign]
    for row in range(3):
        check_alike(world, await harness.margins([world.ids[row]]), slice(row, row + 1))
    first, last = harness.scorer.models["production"].sealed.chain  # type: ignore[union-attr]
    assert between == [(last, first, OnlineMaskAsk), (first, last, OnlineMasks)]
    asked = [recipient for recipient, body in harness.sent if isinstance(body, OnlineSealed)]
    assert asked == [first, last] * 3


@pytest.mark.parametrize("party", ["telco", "retail"])
async def test_a_party_that_is_restarted_has_other_seeds_and_scores_go_on(
    world: World, party: str
) -> None:
    harness = ServingHarness(world, mode="sealed")
    check_alike(world, await harness.margins(world.ids[:2]), slice(0, 2))
    before = harness.parties[party]
    after = harness.parties[party] = Answering(OnlineSection(), None, send=before._sealed._send)
    after.shares.update(before.shares)
    check_alike(world, await harness.margins(world.ids[:5]), slice(0, 5))


async def test_the_seed_of_masks_is_for_the_next_party_alone(world: World) -> None:
    harness = ServingHarness(world, mode="sealed")
    first, last = harness.sealed.chain  # type: ignore[union-attr]
    ask = OnlineMaskAsk(model=world.model.share.model_id)
    assert isinstance(harness.parties[first].answer_neighbour(last, ask), OnlineMasks)
    for party, sender in ((first, ACTIVE), (first, first), (last, first), (last, ACTIVE)):
        assert harness.parties[party].answer_neighbour(sender, ask) is None
    # Nor is one taken that was not asked for.
    made_up = OnlineMasks(model=ask.model, seed=bytes(32))
    harness.parties[last].answer_neighbour(first, made_up)
    assert not harness.parties[last]._sealed._seeds


async def test_without_a_limit_of_the_owner_a_person_has_ten_scores_an_hour(world: World) -> None:
    harness = ServingHarness(world, mode="sealed")
    for _ in range(10):
        await harness.margins(world.ids[:1])
    with pytest.raises(Refused, match="more than 10 scores per id and hour"):
        await harness.margins(world.ids[:1])
    check_alike(world, await harness.margins(world.ids[1:2]), slice(1, 2))


async def test_an_owner_s_limit_is_the_one_that_holds(world: World) -> None:
    harness = ServingHarness(world, mode="sealed", limits={"scores_per_id": 1})
    await harness.margins(world.ids[:1])
    with pytest.raises(Refused, match="more than 1 scores per id and hour"):
        await harness.margins(world.ids[:1])


async def test_modes_of_sealed_alone_answer_no_other_question(world: World) -> None:
    limits = {"modes": ["sealed"]}
    sealed = ServingHarness(world, mode="sealed", limits=limits)
    check_alike(world, await sealed.margins(world.ids[:2]), slice(0, 2))
    with pytest.raises(Refused, match="mode hop is not answered here"):
        await ServingHarness(world, limits=limits).margins(world.ids[:2])


async def test_a_party_that_has_another_key_is_told_again_to_serve_the_model(
    world: World,
) -> None:
    harness = ServingHarness(world, mode="sealed", deadline=0.3)
    model = world.model.share.model_id
    for party, answering in harness.parties.items():  # as if an activation before had been lost
        answering.shares[model] = ServingHarness(world).parties[party].shares[model]
    with pytest.raises(PeerSilent):
        await harness.margins(world.ids[:1])
    assert harness.not_served


async def test_one_batch_asks_about_a_person_once_whatever_the_question(world: World) -> None:
    harness = ServingHarness(world, mode="sealed")
    await harness.margins(world.ids[:1])
    recipient, body = harness.sent[0]
    assert isinstance(body, OnlineSealed)
    again = body.model_copy(update={"hop": body.hop + 100})
    answers: asyncio.Queue[object] = asyncio.Queue()
    harness.scorer.receive = lambda envelope: answers.put_nowait(envelope.body)  # type: ignore
    harness._carry(ACTIVE, recipient, body, harness.scorer.session)
    first = await answers.get()
    harness._carry(ACTIVE, recipient, again, harness.scorer.session)
    assert isinstance(first, OnlineProducts)  # the same question: the same answer
    refused = await answers.get()
    assert "more than one sealed question of a batch about one id" in str(refused)


async def test_requests_with_reasons_get_each_party_s_part_beside_those_without(
    world: World,
) -> None:
    harness = ServingHarness(world, mode="sealed", drop=0.1, delay=0.01, deadline=30.0)
    asked = [harness.scorer.score("production", world.ids[r : r + 2], explain=True) for r in (0, 5)]
    others = [harness.margins(world.ids[r : r + 2]) for r in (1, 7)]

    explained, plain = await asyncio.gather(asyncio.gather(*asked), asyncio.gather(*others))

    for start, scored in zip((0, 5), explained, strict=True):
        assert [str(player) for player in scored.players] == [ACTIVE, "telco", "retail"]
        found = scored.contributions
        assert found is not None and (np.ptp(found[:, :-1], axis=0) > 0).all()
        np.testing.assert_allclose(found.sum(axis=1), scored.scores.margins, rtol=1e-5)
        np.testing.assert_allclose(
            found.sum(axis=1), world.margins[start : start + 2], rtol=1e-4, atol=1e-5
        )
    for start, margins in zip((1, 7), plain, strict=True):
        check_alike(world, margins, slice(start, start + 2))


async def test_reasons_count_as_a_score_of_each_party(world: World) -> None:
    harness = ServingHarness(world, mode="sealed", limits={"scores_per_id": 4})
    await harness.margins(world.ids[:1], explain=True)  # three parties: three scores
    await harness.margins(world.ids[:1])
    with pytest.raises(Refused, match="more than 4 scores per id and hour"):
        await harness.margins(world.ids[:1])


async def test_an_owner_without_reasons_multiplies_no_parts(world: World) -> None:
    agreed = Agreed(refusing=("telco",))
    harness = ServingHarness(world, mode="sealed", agreed=agreed)
    with pytest.raises(DataError, match=r"in the \[policy\] of telco"):
        await harness.margins(world.ids[:1], explain=True)
    harness = ServingHarness(world, mode="sealed")
    harness.parties["telco"]._explains = lambda: False
    with pytest.raises(Refused, match="no reasons are given here"):
        await harness.margins(world.ids[:1], explain=True)
    check_alike(world, await harness.margins(world.ids[:1]), slice(0, 1))


async def test_reasons_of_too_many_leaves_name_what_to_use(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "MOST_CIPHERTEXTS", 0)
    harness = ServingHarness(world, mode="sealed")
    with pytest.raises(DataError, match="take 1 ciphertexts of a row, and online 0 are taken: use"):
        await harness.margins(world.ids[:1], explain=True)


@pytest.mark.skipif(not machine_ring.can_compute(), reason="llvmlite is not installed")
@pytest.mark.parametrize(("translated", "threads"), [(True, False), (False, True)])
async def test_one_person_is_scored_without_a_thread_once_the_code_is_translated(
    world: World, monkeypatch: pytest.MonkeyPatch, translated: bool, threads: bool
) -> None:
    machine_ring.translate()
    for module in (sealed_active, sealed_passive):
        monkeypatch.setattr(module, "is_translated", lambda: translated)
    harness, handed = ServingHarness(world, mode="sealed"), []
    submit = ThreadPoolExecutor.submit

    def noted(self: ThreadPoolExecutor, function: Any, /, *arguments: Any, **named: Any) -> Any:
        if getattr(function, "__name__", "") != "blank":  # made ahead, while nobody waits
            handed.append(self._thread_name_prefix)
        return submit(self, function, *arguments, **named)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
    check_alike(world, await harness.margins(world.ids[:1]), slice(0, 1))
    assert ("fedmq-sealed" in handed) is threads


@pytest.mark.parametrize("mode", ["sealed", "bitmap"])
async def test_the_code_is_translated_while_a_sealed_share_is_loaded(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    done: list[str] = []
    monkeypatch.setattr(model_loader, "translate", lambda: done.append("translated"))
    loader = ModelLoader(
        is_active=False,
        model_store=Mock(),
        deployments=Mock(),
        source=Mock(),
        scorer=Mock(),
        answering=Mock(shares={}),
        pool=Mock(),
        gate=Mock(),
        max_age=1.0,
        reasons={},
    )
    loader.host("m", Mock(sealed=Mock() if mode == "sealed" else None), None)
    await asyncio.gather(*loader._tasks)
    assert done == (["translated"] if mode == "sealed" else [])
