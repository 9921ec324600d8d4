"""Fallback models: trained after a model under its consent, and scoring who is unknown or away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fedmq.boosting.model.share import ActiveShare
from fedmq.errors import DaemonError, Refused
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from fedmq.party.consent.terms import terms_in_words
from fedmq.party.services.training import TrainingService, check_fallback
from fedmq.privacy.engines.plain import Plain
from tests.how_often import seldom
from tests.party.daemons_in_memory import DaemonsInMemory


def job(**wanted: Any) -> dict[str, Any]:
    params = {"num_boost_round": 3, "max_depth": 2, "max_bin": 8, "min_child_weight": 0.1}
    values = {"model": "m", "engine": "plain", "evaluation": 0.3, "params": params, **wanted}
    return TrainingJob.model_validate(values).model_dump(mode="json")


def grown(share: ActiveShare) -> list[str]:
    return [tree.model_dump_json() for tree in share.trees]


async def test_fallback_models_follow_a_training_on_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch) as demo:
        result = await demo.ask("bank", "train", job=job(fallback=True))
        assert [(of["model"], of["without"]) for of in result["fallbacks"]] == [
            ("m-without-telco", ["telco"]),
            ("m-without-retail", ["retail"]),
            ("m-alone", ["retail", "telco"]),
        ]
        assert demo.models() == {
            "bank": ["m", "m-alone", "m-without-retail", "m-without-telco"],
            "telco": ["m", "m-without-retail"],
            "retail": ["m", "m-without-telco"],
        }
        store = demo.daemons["bank"].parts.context.model_store
        main = store.active("m")
        assert set(store.fallbacks(main)) == {
            frozenset({"telco"}),
            frozenset({"retail"}),
            frozenset({"telco", "retail"}),
        }
        assert store.newest() == "m"
        # Each is the model that a training of its own gives.
        for of in result["fallbacks"]:
            parties = [party for party in ("telco", "retail") if party not in of["without"]]
            await demo.ask("bank", "train", job=job(model="own", parties=parties))
            own, fallback = store.active("own"), store.active(of["model"])
            assert grown(own) == grown(fallback) and own.metrics == fallback.metrics
            assert of["worth"]["value"] == main.metrics["eval-logloss"]
            assert of["worth"]["without"] == own.metrics["eval-logloss"]
            for party in ("bank", *parties):
                demo.daemons[party].parts.context.model_store.forget("own")


async def test_an_owner_is_asked_once_for_a_model_and_its_fallback_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, 'consent = "ask"\n') as demo:
        training = asyncio.create_task(demo.ask("bank", "train", job=job(fallback=True)))
        for party, other in (("telco", "retail"), ("retail", "telco")):
            (asked,) = await demo.until(lambda party=party: demo.ask(party, "inbox"))
            assert asked["terms"]["fallbacks"] == [other]
            assert dict(terms_in_words(asked))["fallback models"] == (
                "trained on the same terms once more, each counted as a training, without: " + other
            )
            await demo.ask(party, "approve", request=asked["request"], by="ann", diff=None)
        result = await training
        assert not any("failed" in of for of in result["fallbacks"])


async def test_a_restart_between_a_model_and_its_fallback_models_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch) as demo:
        opening = asyncio.Event()

        async def lose(sender: str, _: str, message: str) -> bool:
            if sender == "bank" and "m-without-telco" in message:
                opening.set()
            return opening.is_set()

        demo.hold = lose
        training = asyncio.create_task(demo.ask("bank", "train", job=job(fallback=True)))
        await opening.wait()
        assert demo.models()["bank"] == ["m"]
        await demo.stop("bank")
        with pytest.raises(DaemonError):
            await training
        opening.clear()
        demo.hold = deliver
        await demo.start("bank")
        status = (await demo.ask("bank", "status"))["idle"]
        assert all("waits for" in line for line in status)
        main = await demo.until(lambda: finished(demo, "m"))
        result = await demo.ask("bank", "follow", session=main, again=True)
        assert [of["model"] for of in result["fallbacks"] if "failed" not in of] == [
            "m-without-telco",
            "m-without-retail",
            "m-alone",
        ]


async def deliver(_: str, __: str, ___: str) -> bool:
    return False


async def finished(demo: DaemonsInMemory, model: str) -> str:
    ended = await demo.daemons["bank"].parts.context.session_store.ended(9)
    return next((session.id for session, _ in ended if session.model == model), "")


async def test_fallback_models_end_with_a_model_that_is_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, "most_trees = 1\n") as demo:
        with pytest.raises(DaemonError, match="train 3 trees, at most 1"):
            await demo.ask("bank", "train", job=job(fallback=True))

        async def at_rest() -> bool:
            return not await demo.daemons["bank"].parts.context.session_store.running()

        assert await demo.until(at_rest)
        assert demo.models() == {"bank": [], "telco": [], "retail": []}


async def test_the_consent_to_a_model_covers_each_fallback_model_once_and_on_its_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Envelope] = []
    join = TrainingService._join

    async def noted(service: TrainingService, envelope: Envelope) -> Any:
        opened.append(envelope)
        return await join(service, envelope)

    monkeypatch.setattr(TrainingService, "_join", noted)
    async with DaemonsInMemory(tmp_path, monkeypatch) as demo:
        await demo.ask("bank", "train", job=job(fallback=True))
        header, terms = next(
            (envelope.header, envelope.body)
            for envelope in opened
            if envelope.body.fallback_of is not None and envelope.header.recipient == "telco"
        )
        context = demo.daemons["telco"].parts.context
        await check_fallback(context, header, terms, Plain(), anew=False)
        with pytest.raises(Refused, match="telco has trained m-without-retail already"):
            await check_fallback(context, header, terms, Plain(), anew=True)
        main = terms.fallback_of
        for altered, why in (
            (terms.model_copy(update={"trees": 4}), "on these terms"),
            (terms.model_copy(update={"seed": 1}), "on these terms"),
            (with_main(terms, session="another"), "on these terms"),
            (with_main(terms, fallbacks=(*main.fallbacks, "shop")), "on these terms"),
            (with_main(terms, without="shop"), "is not named as a fallback model"),
            (terms.model_copy(update={"model": "other"}), "is not named as a fallback model"),
        ):
            with pytest.raises(Refused, match=why):
                await check_fallback(context, header, altered, Plain(), anew=False)


def with_main(terms: TrainingOpen, **changed: Any) -> TrainingOpen:
    assert terms.fallback_of is not None
    return terms.model_copy(update={"fallback_of": terms.fallback_of.model_copy(update=changed)})


def write_strangers(folder: Path) -> None:
    """Telco lacks p30 to p39, retail p35 to p39; the bank has a column about the label."""
    for party, lacked in (("telco", range(30, 40)), ("retail", range(35, 40))):
        path = folder / party / "data.csv"
        lines = path.read_text().splitlines()
        names = {f"p{row}" for row in lacked}
        kept = [line for line in lines if line.split(",")[0] not in names]
        path.write_text("\n".join(kept) + "\n")


ALIKE = 1e-5
"""Scores in mode sealed are those of mode hop but for the last digits."""
PEOPLE = [f"p{row:02}" for row in range(40)]
FALLBACK = '[online]\nunknown = "fallback"\n'


async def in_production(demo: DaemonsInMemory) -> dict[str, list[float]]:
    """A model with its fallback models in production, and everybody's scores by each of them."""
    align = AlignmentJob(name="people").model_dump(mode="json")
    await demo.ask("bank", "align", job=align)
    await demo.ask("bank", "train", job=job(fallback=True, alignment="people", evaluation=0.0))
    switched = await demo.ask("bank", "activate", model="m", name="production", mode=None)
    assert switched["fallbacks"] == ["m-alone", "m-without-retail", "m-without-telco"]
    known = {"m": 30, "m-without-telco": 35, "m-without-retail": 30, "m-alone": 40}
    return {
        model: (await demo.ask("bank", "predict", model=model, ids=PEOPLE[:rows]))["scores"]
        for model, rows in known.items()
    }


@pytest.mark.parametrize("mode", ["hop", *seldom("bitmap", "sealed")])
async def test_people_unknown_at_parties_are_scored_without_these_in_files_and_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch, f'{FALLBACK}mode = "{mode}"\n')
    write_strangers(tmp_path)
    async with demo:
        by = await in_production(demo)
        expected = [*by["m"][:30], *by["m-without-telco"][30:35], *by["m-alone"][35:]]
        models = [None] * 30 + ["m-without-telco"] * 5 + ["m-alone"] * 5
        in_file = await demo.ask("bank", "predict", model="m", ids=PEOPLE, strict=False)
        assert in_file["scores"] == pytest.approx(expected)
        assert in_file["fallback"] == models
        assert in_file["degraded"] == {"telco": 0.25, "retail": 0.125}
        assert in_file["unknown_at"][29:31] == [[], ["telco"]]
        online = await demo.ask("bank", "score", name="production", ids=PEOPLE)
        assert online["mode"] == mode
        assert [row["score"] for row in online["scores"]] == pytest.approx(expected, rel=ALIKE)
        assert [row.get("fallback") for row in online["scores"]] == models
        assert online["degraded"] == {"telco": 0.25, "retail": 0.125}
        assert online["model"] == "m"
        alone = await demo.ask("bank", "score", name="production", ids=PEOPLE[30:31])
        assert alone["scores"][0]["fallback"] == "m-without-telco"
        assert alone["degraded"] == {"telco": 1.0}


SHORT = (
    f"{FALLBACK}deadline = 6.0\naway = 0.3\n"
    "[retry]\nfirst = 0.2\nceiling = 0.2\nresends = 5\nprobe = 0.5\n"
)
"""Nobody waits long for a party that is away."""


def leave(demo: DaemonsInMemory, *passive: str) -> None:
    (demo.folder / "federation.toml").write_text(
        f'name = "demo"\nactive = "bank"\npassive = {json.dumps(passive)}\n'
    )


@pytest.mark.parametrize("mode", ["sealed", *seldom("hop")])
async def test_fallback_models_score_where_a_party_is_away_or_has_left_and_switch_with_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    settings = SHORT.replace("deadline", f'mode = "{mode}"\ndeadline')
    demo = DaemonsInMemory(tmp_path, monkeypatch, settings)
    async with demo:
        await demo.ask("bank", "train", job=job(fallback=True, evaluation=0.0))
        await demo.ask("bank", "train", job=job(model="n", evaluation=0.0))
        for model in ("m", "n", "m"):
            await demo.ask("bank", "activate", model=model, name="production", mode=None)
        by = {
            model: (await demo.ask("bank", "predict", model=model, ids=PEOPLE))["scores"]
            for model in ("m", "m-without-telco", "m-alone")
        }

        async def scored(without: list[str]) -> None:
            model = {0: "m", 1: "m-without-telco", 2: "m-alone"}[len(without)]
            answer = await demo.ask("bank", "score", name="production", ids=PEOPLE)
            found = [row["score"] for row in answer["scores"]]
            assert found == pytest.approx(by[model], rel=ALIKE)
            named = {row.get("fallback") for row in answer["scores"]}
            assert named == ({model} if without else {None})
            assert answer.get("degraded", {}) == dict.fromkeys(without, 1.0)
            assert answer["model"] == "m"

        await scored([])
        await demo.stop("telco")
        await scored(["telco"])
        in_file = await demo.ask("bank", "predict", model="m", ids=PEOPLE, strict=False)
        assert in_file["scores"] == pytest.approx(by["m-without-telco"])
        assert in_file["without"] == ["telco"]
        await demo.stop("retail")
        await scored(["telco", "retail"])
        await demo.stop("bank")
        await demo.start("bank", "retail")  # what is served outlives a restart
        await scored(["telco"])

        leave(demo, "retail")
        await demo.ask("bank", "reload")
        await scored(["telco"])
        in_file = await demo.ask("bank", "predict", model="m", ids=PEOPLE, strict=False)
        assert in_file["scores"] == pytest.approx(by["m-without-telco"])
        assert in_file["fallback"] == ["m-without-telco"] * 40
        assert in_file["without"] == ["telco"] and in_file["degraded"] == {"telco": 1.0}
        # The other model has no fallback model: nobody is served by it.
        for do in ("predict", "activate"):
            with pytest.raises(DaemonError, match="model n cannot be used without telco"):
                await demo.ask("bank", do, model="n", ids=PEOPLE, name="production", mode=None)
        await demo.ask("bank", "activate", model="m", name="again", mode=None)
        again = await demo.ask("bank", "score", name="again", ids=PEOPLE[:1])
        assert again["scores"][0]["score"] == pytest.approx(by["m-without-telco"][0], rel=ALIKE)
        assert again["scores"][0]["fallback"] == "m-without-telco"


async def test_without_fallback_models_nothing_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, FALLBACK) as demo:
        await demo.ask("bank", "train", job=job(evaluation=0.0))
        await demo.ask("bank", "activate", model="m", name="production", mode=None)
        leave(demo, "retail")
        await demo.ask("bank", "reload")
        with pytest.raises(DaemonError, match="model m cannot be used without telco") as refused:
            await demo.ask("bank", "score", name="production", ids=PEOPLE)
        assert "activate another model" in str(refused.value)
