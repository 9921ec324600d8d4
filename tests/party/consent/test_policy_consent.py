"""A party's policy, held against what is asked of it; and the record of both."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.errors import ConfigError, DataError, Refused
from fedmq.messages.array import Array, Bitmap, pack_payload
from fedmq.messages.envelope import Header
from fedmq.messages.inference import InferenceOpen, SealedTerms
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.policy_consent import PolicyConsent, RowQuota
from fedmq.party.identity.sealer import Clear
from fedmq.party.telemetry.metrics import Traffic
from fedmq.privacy.engines.lattice import Lattice
from tests.full_disk import room_for
from tests.party.attacked import PARTIES, ROWS, Recorder, Training
from tests.party.sealed_parties import envelope

HEADER = envelope().header


def consent(state: Path, **policy: Any) -> PolicyConsent:
    return PolicyConsent("telco", PolicySection.model_validate(policy), AuditLog(state))


def terms(**changes: Any) -> TrainingOpen:
    number = np.frombuffer((1 << 2047 | 1).to_bytes(256, "little"), np.uint8)
    usual = {
        "model": "m",
        "rows": 100,
        "alignment": "",
        "alignment_name": "",
        "evaluation": Bitmap.of(np.zeros(100, dtype=np.bool_)),
        "engine": "paillier",
        "public": pack_payload({"n": number}),
        "trees": 10,
        "active_only_trees": 0,
        "max_depth": 3,
        "max_bin": 32,
        "colsample_bytree": 1.0,
        "seed": 0,
    }
    return TrainingOpen(**(usual | changes))


class TestTraining:
    async def test_usual_terms_are_agreed_to(self, tmp_path: Path) -> None:
        party = consent(tmp_path, peers=["bank"], smallest_key=2048, most_trees=10)
        assert (await party.training(HEADER, terms())).name == "paillier"

    async def test_gradients_of_few_bits_are_agreed_to(self, tmp_path: Path) -> None:
        assert await consent(tmp_path, most_gradient_bits=4).training(HEADER, terms(value_bits=3))

    async def test_a_column_may_be_named_that_was_agreed_on(self, tmp_path: Path) -> None:
        agreed = consent(tmp_path, agreed_columns=["minutes"])
        assert (await agreed.training(HEADER, terms(signs={"minutes": 1}))).name == "paillier"

    async def test_columns_may_be_held_together_by_agreed_names(self, tmp_path: Path) -> None:
        agreed = consent(tmp_path, interaction_constraints=True, agreed_columns=["usage"])
        asked = terms(together=(("usage",), ("*",), ()))
        assert (await agreed.training(HEADER, asked)).name == "paillier"

    @pytest.mark.parametrize(
        ("policy", "asked", "reason"),
        [
            ({"peers": ["retail"]}, {}, "telco does not join sessions of bank"),
            ({"sessions": ["inference"]}, {}, "telco does not take part in training"),
            ({}, {"engine": "plain"}, "with engine 'plain', only paillier, ou"),
            ({}, {"engine": "unheard-of"}, "with engine 'unheard-of'"),
            ({"smallest_key": 3072}, {}, "keys of 2048 bits, only from 3072 on"),
            ({"most_trees": 9}, {}, "train 10 trees, at most 9"),
            ({"most_trees": 1000}, {"trees": 1001}, "train 1001 trees, at most 1000"),
            ({}, {"trees": 1001}, "train 1001 trees, at most 1000"),
            ({}, {"max_depth": 11}, "train trees of depth 11, at most 10"),
            ({"most_depth": 2}, {}, "train trees of depth 3, at most 2"),
            (
                {},
                {"max_depth": 30, "max_leaves": 31},
                "depth 30, at most 10: set max_depth = 10 beside max_leaves",
            ),
            ({}, {"max_bin": 257}, "train with max_bin = 257, at most 256"),
            ({"most_bins": 31}, {}, "train with max_bin = 32, at most 31"),
            (
                {"agreed_columns": ["income"]},
                {"signs": {"minutes": 1}},
                "train with column 'minutes' that another party named",
            ),
            ({}, {"together": (("*",),)}, "telco does not train with interaction_constraints"),
            (
                {"interaction_constraints": True, "agreed_columns": ["income"]},
                {"together": (("income", "*"), ("minutes",))},
                "train with column 'minutes' that another party named",
            ),
            ({"most_gradient_bits": 4}, {}, "take gradients of 41 bits, at most 4"),
            ({"most_gradient_bits": 4}, {"value_bits": 4}, "take gradients of 5 bits, at most 4"),
        ],
    )
    async def test_others_are_refused_with_the_reason(
        self, tmp_path: Path, policy: dict[str, Any], asked: dict[str, Any], reason: str
    ) -> None:
        with pytest.raises(Refused, match=reason):
            await consent(tmp_path, **policy).training(HEADER, terms(**asked))

    async def test_an_owner_sets_its_own_options_of_an_engine(self, tmp_path: Path) -> None:
        own = {"lattice": {"hint_bytes": 5000, "directions": "all"}}
        asked = terms(engine="lattice")
        party = consent(tmp_path, engines=["lattice"], engine_options=own)
        assert await party.training(HEADER, asked) == Lattice(hint_bytes=5000, directions="all")
        assert await consent(tmp_path, engines=["lattice"]).training(HEADER, asked) == Lattice()

    async def test_a_lattice_that_shows_sums_is_refused_where_no_leaky_engine_is_allowed(
        self, tmp_path: Path
    ) -> None:
        party = consent(tmp_path, engines=["lattice"], allow_leaky_engines=False)
        with pytest.raises(Refused, match=r"where it shows sums: .*allow_leaky_engines = true"):
            await party.training(HEADER, terms(engine="lattice"))
        hidden = terms(engine="lattice", sums="hidden")
        assert (await party.training(HEADER, hidden)).on_terms("hidden").hides_sums

    async def test_an_engine_that_hides_rows_and_declining_of_small_nodes_exclude_each_other(
        self, tmp_path: Path
    ) -> None:
        careful = consent(tmp_path, engines=["lattice"], smallest_node=5)
        with pytest.raises(Refused, match="it hides the size of nodes"):
            await careful.training(HEADER, terms(engine="lattice"))

    async def test_trainings_are_counted_by_the_day_and_over_a_restart(
        self, tmp_path: Path
    ) -> None:
        later = [Header(**(HEADER.model_dump() | {"session": f"{n:016x}"})) for n in range(3)]
        party = consent(tmp_path, most_trainings_per_day=2)
        for header in later[:2]:
            await party.training(header, terms())

        for again in (party, consent(tmp_path, most_trainings_per_day=2)):
            await again.training(later[0], terms())  # it goes on after a crash
            with pytest.raises(Refused, match="takes part in 2 trainings a day at most"):
                await again.training(later[2], terms())

    async def test_what_cannot_be_recorded_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "audit.jsonl").mkdir()
        with pytest.raises(Refused, match="cannot write its audit log"):
            await consent(tmp_path).training(HEADER, terms())


class TestInference:
    async def test_rows_per_hour_are_counted_also_over_a_restart(self, tmp_path: Path) -> None:
        asked = InferenceOpen(model="m", rows=60, id_pieces=0)
        await consent(tmp_path, most_rows_per_hour=100).inference(HEADER, asked)
        restarted = consent(tmp_path, most_rows_per_hour=100)
        with pytest.raises(Refused, match="60 were asked for within the last hour, and 60 more"):
            await restarted.inference(HEADER, asked)
        await restarted.inference(HEADER, asked.model_copy(update={"rows": 40}))

    def test_an_hour_later_they_are_free_again(self) -> None:
        now = 0.0
        quota = RowQuota(10, lambda: now)
        quota.take(10)
        with pytest.raises(Refused):
            quota.take(1)
        now = 3600.0
        quota.take(10)

    def test_a_limit_that_is_set_while_it_runs_counts_the_last_hour(self) -> None:
        quota = RowQuota(None, lambda: 0.0)
        quota.take(10)
        quota.limit = 15
        quota.take(5)
        with pytest.raises(Refused, match="15 were asked for"):
            quota.take(1)

    def test_rows_of_one_second_are_kept_until_an_hour_after_the_last(self) -> None:
        now = 0.0
        quota = RowQuota(10, lambda: now)
        quota.take(5)
        now = 0.9
        quota.take(5)
        now = 3600.5
        with pytest.raises(Refused, match="10 were asked for"):
            quota.take(1)
        now = 3600.9
        quota.take(10)

    async def test_rows_asked_for_online_count_too_also_over_a_restart(
        self, tmp_path: Path
    ) -> None:
        party = consent(tmp_path, most_rows_per_hour=100)
        await party.inference(HEADER, InferenceOpen(model="m", rows=60, id_pieces=0))
        for _ in range(30):
            party.scoring(1)
            await party.until_written(HEADER)
        restarted = consent(tmp_path, most_rows_per_hour=100)
        with pytest.raises(Refused, match="90 were asked for within the last hour, and 11 more"):
            restarted.scoring(11)
        restarted.scoring(10)

    async def test_online_rows_are_written_down_many_at_once(self, tmp_path: Path) -> None:
        party = consent(tmp_path, most_rows_per_hour=100_000)
        for _ in range(1500):
            party.scoring(1)
            await party.until_written(HEADER)
        assert [entry["rows"] for entry in party.audit.log.entries()] == [1000, 1000]

    async def test_without_a_limit_nothing_is_written_down(self, tmp_path: Path) -> None:
        party = consent(tmp_path)
        party.scoring(1000)
        await party.until_written(HEADER)
        assert not list(party.audit.log.entries())

    async def test_inference_can_be_refused_altogether(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="does not take part in inference"):
            await consent(tmp_path, sessions=["training"]).inference(
                HEADER, InferenceOpen(model="m", rows=1, id_pieces=0)
            )

    async def test_reasons_are_refused_before_anything_of_the_quota_is_taken(
        self, tmp_path: Path
    ) -> None:
        asked = InferenceOpen(model="m", rows=5, id_pieces=0, explained_records=3)
        unwilling = consent(tmp_path / "a", explain="none", most_rows_per_hour=5)
        with pytest.raises(Refused, match="does not contribute to reasons for scores"):
            await unwilling.inference(HEADER, asked)
        willing = consent(tmp_path / "b", most_rows_per_hour=5)
        with pytest.raises(Refused, match="does not show all directions, which reasons need"):
            await willing.inference(HEADER, asked, modes=["hop"])
        for party in (unwilling, willing):
            await party.inference(HEADER, asked.model_copy(update={"explained_records": 0}))

    async def test_an_owner_answers_sealed_files_alone_or_none(self, tmp_path: Path) -> None:
        none = Array.of(np.empty(0, np.uint32))
        sealed = SealedTerms(
            slots=(2,),
            chain=("telco",),
            records=none,
            starts=none,
            middles=none,
            ends=none,
            key_seed=bytes(32),
            key=b"",
        )
        walked = InferenceOpen(model="m", rows=5, id_pieces=0)
        asked = walked.model_copy(update={"sealed": sealed})
        party = consent(tmp_path, most_rows_per_hour=5)
        with pytest.raises(Refused, match=r"modes of its \[online\] are sealed alone"):
            await party.inference(HEADER, walked, modes=["sealed"])
        with pytest.raises(Refused, match=r"modes of its \[online\] lack sealed"):
            await party.inference(HEADER, asked, modes=["hop", "bitmap"])
        await party.inference(HEADER, asked, modes=["sealed"])
        *_, entry = party.audit.log.entries()
        assert (entry["rows"], entry["mode"]) == (5, "sealed")

    async def test_so_can_serving_online(self, tmp_path: Path) -> None:
        await consent(tmp_path / "a").serving(HEADER, "m", "hop")
        with pytest.raises(Refused, match="does not take part in inference"):
            await consent(tmp_path / "b", sessions=["training"]).serving(HEADER, "m", "hop")


class TestAuditLog:
    async def test_questions_and_answers_are_recorded(self, tmp_path: Path) -> None:
        party = consent(tmp_path, most_trees=9)
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        traffic = Traffic()
        party.audit.follow(HEADER, outcome, traffic)
        header = Header(**(HEADER.model_dump() | {"sender": "telco", "recipient": "bank"}))
        traffic.count(header, 100)
        with pytest.raises(Refused) as refused:
            await party.training(HEADER, terms())
        outcome.set_exception(refused.value)
        await party.audit.close()

        asked, ended = party.audit.log.entries()
        assert (asked["event"], asked["peer"], asked["trees"]) == ("asked", "bank", 10)
        assert ended["outcome"] == "telco does not train 10 trees, at most 9"
        assert ended["answered"] == {"probe": 1}

    @pytest.fixture
    def log(self, tmp_path: Path) -> AuditLog:
        log = AuditLog(tmp_path)
        for number in range(5):
            log.record("asked", rows=number)
        return log

    def test_it_goes_on_after_a_restart(self, log: AuditLog) -> None:
        AuditLog(log.path.parent).record("asked", rows=5)
        assert [entry["rows"] for entry in log.entries()] == list(range(6))

    @pytest.mark.parametrize("change", ["altered", "removed", "inserted", "swapped"])
    def test_changes_show(self, log: AuditLog, change: str) -> None:
        lines = log.path.read_text().splitlines(keepends=True)
        if change == "altered":
            lines[1] = lines[1].replace('"rows": 1', '"rows": 2')
        elif change == "removed":
            del lines[2]
        elif change == "inserted":
            lines.insert(2, lines[2])
        else:
            lines[1:3] = reversed(lines[1:3])
        log.path.write_text("".join(lines))
        with pytest.raises(DataError, match="the log was changed"):
            list(log.entries())
        with pytest.raises(DataError):
            AuditLog(log.path.parent).record("asked")

    def test_the_newest_comes_first_however_long_the_lines_are(self, log: AuditLog) -> None:
        ids = [str(number) for number in range(20_000)]  # a line longer than what is read at once
        log.record_all([{"event": "asked online", "ids": ids, "rows": rows} for rows in (5, 6)])
        log.record_all([{"event": "asked", "rows": rows} for rows in range(7, 2000)])

        assert [entry["rows"] for entry in log.latest()] == list(range(1999, -1, -1))
        AuditLog(log.path.parent).record("asked", rows=2000)
        assert [entry["rows"] for entry in log.entries()] == list(range(2001))

    def test_a_line_cut_off_by_a_crash_is_none(self, log: AuditLog) -> None:
        _, before = log.verified()
        with log.path.open("a") as file:
            file.write(json.dumps({"number": 6})[:-4])
        assert [entry["rows"] for entry in log.entries()] == list(range(5))
        again = AuditLog(log.path.parent)
        again.record("asked", rows=5)
        assert [entry["rows"] for entry in again.entries()][-1] == 5
        assert [entry["previous"] for entry in again.entries()][-1] == before

    def test_whether_the_disk_takes_more_is_seen_without_a_trace(self, log: AuditLog) -> None:
        before = log.path.read_bytes()
        log.check()
        assert log.path.read_bytes() == before
        log.record("asked", rows=5)
        assert [entry["rows"] for entry in log.entries()] == list(range(6))

    def test_a_disk_that_takes_a_part_only_is_full_and_left_as_it_was(self, log: AuditLog) -> None:
        before = log.path.read_bytes()
        with room_for(len(before) + 1000), pytest.raises(ConfigError, match="cannot be written"):
            log.check()
        assert log.path.read_bytes() == before
        log.record("asked", rows=5)
        assert [entry["rows"] for entry in AuditLog(log.path.parent).entries()] == list(range(6))

    async def test_a_session_waits_for_a_disk_that_is_full(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refusals = iter([ConfigError("full"), ConfigError("full"), None])

        def check() -> None:
            error = next(refusals)
            if error is not None:
                raise error

        careful = consent(tmp_path)
        monkeypatch.setattr(careful.audit.log, "check", check)
        await careful.audit.until_recordable()
        assert next(refusals, "all were met") == "all were met"

    def test_a_full_disk_is_an_error(self) -> None:
        log = AuditLog(Path("/dev/null/state"))
        with pytest.raises(ConfigError, match="cannot be used"):
            log.record("asked")
        with pytest.raises(ConfigError, match="cannot be written"):
            log.check()


class TestSmallNodes:
    async def trained(self, smallest_node: int) -> tuple[Any, Recorder]:
        recorder = Recorder()
        training = Training({party: Clear() for party in PARTIES}, smallest_node)
        return await training.run(recorder.links()), recorder

    async def test_sums_of_few_rows_are_not_told(self) -> None:
        usual, _ = await self.trained(0)
        careful, recorder = await self.trained(60)
        declined = [message for message in recorder.recorded if b"node declined" in message.body]
        assert declined
        assert {message.recipient for message in declined} == {"bank"}
        assert careful.dumps() != usual.dumps()

    async def test_a_party_that_tells_nothing_wins_no_split(self) -> None:
        share, _ = await self.trained(ROWS + 1)
        assert {owner for tree in share.trees for owner in tree.owner.tolist() if owner >= 0} == {0}

    async def test_a_bound_that_no_node_meets_changes_nothing(self) -> None:
        usual, _ = await self.trained(0)
        careful, _ = await self.trained(1)
        assert careful.departures == ()
        assert careful.model_copy(update={"withheld": {}}).dumps() == usual.dumps()
