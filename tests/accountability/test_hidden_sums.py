"""Transcripts of trainings whose sums nobody saw: circuits are replayed, a false one is named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from fedmq.accountability.transcript_file import KeptMessage, TranscriptFile, export
from fedmq.errors import ConfigError, FedmqError, Inconsistent
from fedmq.messages import training
from fedmq.messages.codec import pack_body
from fedmq.party.store.transcripts import _thin, session_folder
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.passive import HiddenPassive
from fedmq.privacy.hidden_sums.sides import SenderSide
from fedmq.protocol.training.claims import ConsistencyCheck
from fedmq.protocol.training.comparisons import check_handed_on
from fedmq.protocol.training.passive_growth import PassiveComparisons
from fedmq.protocol.training.transcripts import salt_of_shares
from tests.accountability.audited import OPTIONS, AuditedDaemons
from tests.accountability.test_damaged_folder import OPENING
from tests.how_often import seldom

pytestmark = pytest.mark.usefixtures("short_exponents")

HIDDEN: dict[str, dict[str, Any]] = {
    "lattice": OPTIONS["lattice"] | {"sums": "hidden"},
    "ou": OPTIONS["ou"] | {"sums": "hidden", "key_bits": 768},
    "copies": OPTIONS["lattice"] | {"sums": "hidden", "covert": 2},
}
NAMED = {"copies": "lattice"}
LIE = "tree 0, node 1, parcel {}, piece 0: its circuits, transfers or shares are not those that"


async def trained(daemons: AuditedDaemons, trees: int, engine: str = "lattice") -> None:
    await daemons.start()
    await daemons.train("m", trees, NAMED.get(engine, engine), **HIDDEN[engine])
    await daemons.stop()


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "copies")])
async def test_every_circuit_of_an_honest_training_is_proved(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await trained(daemons, 2, engine)
    for party in ("telco", "retail"):
        verdict = daemons.verified(party)
        assert (verdict.attempts, verdict.trees, verdict.signed) == (1, 2, 2)
        assert (verdict.thin_trees, verdict.engine) == (0, NAMED.get(engine, engine))
    telco, retail = daemons.shown("telco"), daemons.shown("retail")
    assert circuits_kept(telco) == circuits_kept(retail) == (True, False)
    assert_what_was_handed_on_is_bound(daemons, retail, monkeypatch)
    assert_a_tree_without_circuits_is_passed_over(daemons, telco)


@pytest.mark.long
async def test_circuits_of_an_attempt_after_a_crash_are_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.start()
    asking = asyncio.create_task(daemons.train("m", 4, "lattice", **HIDDEN["lattice"]))
    folder = tmp_path / "telco" / "state" / "transcripts"
    await daemons.until(lambda: asyncio.to_thread(finished, folder))
    await daemons.stop("telco")
    await daemons.start("telco")
    await asking
    await daemons.stop()
    for party in ("telco", "retail"):
        verdict = daemons.verified(party)
        assert verdict.attempts > 1
        assert verdict.trees >= 4
        assert verdict.signed > 4 - verdict.attempts  # a signature may not have left


def finished(folder: Path) -> bool:
    """Whether a tree is finished, whose file has the tree's lot in its name."""
    return any(folder.rglob("1-0-*.tree"))


def circuits_kept(shown: TranscriptFile) -> tuple[bool, bool]:
    """Whether the payloads of circuits are kept that came, and that went."""
    attempt = shown.attempts[1]
    came, went = (
        {bool(message.digest) for message in messages if isinstance(message.body, kind)}
        for messages, kind in (
            (attempt.questions, training.CircuitPiece | training.BestSoFar),
            (attempt.answers, training.CircuitPiece),
        )
    )
    assert len(came) == len(went) == 1
    return not came.pop(), not went.pop()


def assert_what_was_handed_on_is_bound(
    daemons: AuditedDaemons, retail: TranscriptFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second party of a chain shows other shares than the first one handed on to it."""
    questions = retail.attempts[1].questions
    [place, *_] = [
        place
        for place, question in enumerate(questions)
        if isinstance(question.body, training.BestSoFar)
    ]
    body = questions[place].body.model_copy(update={"salt": bytes(16)})
    questions[place] = KeptMessage(questions[place].sequence, body.kind, pack_body(body), b"")
    with monkeypatch.context() as shown:
        shown.setattr(daemons, "shown", {"retail": retail, "bank": daemons.shown("bank")}.get)
        with pytest.raises(Inconsistent, match="tree 0: it handed on, or was handed, other shares"):
            daemons.verified("retail")


def assert_a_tree_without_circuits_is_passed_over(
    daemons: AuditedDaemons, telco: TranscriptFile
) -> None:
    """Where room is short one tree is left out; the circuits of the other one are proved."""
    [session] = daemons.sessions
    folder = daemons.folder / "telco" / "state" / "transcripts" / session
    highest = max(folder.glob("*.tree"), key=lambda path: int(path.stem.split("-")[2]))
    before = highest.stat().st_size
    assert _thin(highest, highest.with_suffix(".thin")) < before / 3
    verdict = daemons.verified("telco")
    assert (verdict.thin_trees, verdict.trees, verdict.signed) == (1, 2, 2)
    [thin] = daemons.shown("telco").attempts[1].thin_trees()
    circuits = [
        answer
        for answer in telco.attempts[1].answers
        if answer.tree == thin and isinstance(answer.body, training.CircuitPiece)
    ]
    assert circuits


# Lies


def another_circuit(lies: pytest.MonkeyPatch) -> str:
    """Of the first input of each circuit it garbles the opposite."""
    honest = SenderSide.garble

    def garble(side: SenderSide, tables: Any) -> Any:
        run = honest(side, tables)

        def lying(schedule: Any, inputs: Any) -> Any:
            first, *others = inputs
            turned = inputs[first].copy()
            turned[0] ^= side.secret
            return run(schedule, {first: turned, **{name: inputs[name] for name in others}})

        return lying

    lies.setattr(SenderSide, "garble", garble)
    return LIE.format(r"\d+")


def another_candidate(lies: pytest.MonkeyPatch) -> str:
    """It gives each candidate's sums to another one."""
    _with_other_shares(lies, lambda shares: shares[:, ::-1].copy())
    return LIE.format(r"\d+")


def another_share(lies: pytest.MonkeyPatch) -> str:
    """It adds to its shares of g, so that a worse candidate may win."""
    _with_other_shares(lies, lambda shares: shares + np.array([1000, 0], np.uint64))
    return LIE.format(r"\d+")


def _with_other_shares(lies: pytest.MonkeyPatch, change: Any) -> None:
    honest = LevelGarbler.__init__

    def begin(garbler: LevelGarbler, circuit: Any, shares: Any, *others: Any) -> None:
        honest(garbler, circuit, change(shares) & circuit.field.mask, *others)

    lies.setattr(LevelGarbler, "__init__", begin)


def another_gain_handed_on(lies: pytest.MonkeyPatch) -> str:
    """It hands on another best gain so far than its circuit found."""
    honest = LevelGarbler.handed

    def handed(garbler: LevelGarbler) -> Any:
        bits = honest(garbler).copy()
        bits[0] ^= True
        return bits

    lies.setattr(LevelGarbler, "handed", handed)
    return "tree 0: it handed on, or was handed, other shares than it says"


def other_transfers(lies: pytest.MonkeyPatch) -> str:
    """It draws its choices of transfers from another secret than it committed to."""
    honest = HiddenPassive._derived

    def derived(half: HiddenPassive, purpose: str) -> bytes:
        return honest(half, f"{purpose}!")

    lies.setattr(HiddenPassive, "_derived", derived)
    return "what it sent before the first tree is not what its table gives"


@pytest.mark.parametrize(
    "lie",
    [
        another_circuit,
        *(
            pytest.param(lie, marks=pytest.mark.long)
            for lie in (another_candidate, another_share, another_gain_handed_on, other_transfers)
        ),
    ],
)
async def test_a_party_that_cheats_in_circuits_is_named_with_the_message(
    lie: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as lies:
        named = lie(lies)
        lies.setattr(ConsistencyCheck, "check_gain", lambda *_: None)  # if a bound finds it out
        await trained(daemons, 1)
    with pytest.raises(Inconsistent, match=f"telco: attempt 1, {named}|telco: attempt 1: {named}"):
        daemons.verified()


def test_what_was_handed_on_is_what_the_next_party_was_handed_or_the_training_ends() -> None:
    one, other = (1, b"1" * 32), (3, b"3" * 32)
    saved = {
        "telco": training.TreeSaved(tree=4, given=(one, other)),
        "shop": training.TreeSaved(tree=4, given=(one,), taken=(one, other)),
        "retail": training.TreeSaved(tree=4, taken=(one,)),
    }
    check_handed_on(4, saved)
    forged = training.TreeSaved(tree=4, taken=((3, b"4" * 32), one), given=(one,))
    with pytest.raises(Inconsistent, match="shop or telco: tree 4, node 3: one says that it"):
        check_handed_on(4, saved | {"shop": forged})


@pytest.mark.long
async def test_a_party_that_denies_what_it_was_handed_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = PassiveComparisons._note

    def note(part: PassiveComparisons, hashes: Any, share: training.BestSoFar) -> None:
        if hashes is part.taken:
            share = share.model_copy(update={"salt": b"another salt 16b"})
        honest(part, hashes, share)

    monkeypatch.setattr(PassiveComparisons, "_note", note)
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.start()
    with pytest.raises(FedmqError, match="retail or telco: tree 0, node 1: one says that it"):
        await daemons.train("m", 2, "lattice", **HIDDEN["lattice"])
    await daemons.stop()


def test_the_salt_of_what_is_handed_on_differs_by_secret_tree_and_node() -> None:
    salts = {salt_of_shares(*place) for place in ((7, 0, 1), (8, 0, 1), (7, 1, 1), (7, 0, 2))}
    assert {len(salt) for salt in salts} == {16}
    assert len(salts) == 4


@pytest.mark.parametrize(("signed", "version"), [(False, None), (True, 2)])
def test_circuits_that_an_earlier_version_did_not_sign_are_not_exported(
    signed: bool, version: int | None, tmp_path: Path
) -> None:
    terms = {"engine": "lattice", "sums": "hidden", "signed_circuits": signed}
    opening = OPENING.model_copy(update=terms)
    folder = session_folder(tmp_path, "0123")
    folder.mkdir(parents=True)
    opened = ["message", 1, True, 1, opening.kind, pack_body(opening), b""]
    (folder / "1.opening").write_bytes(msgpack.packb(opened))
    path = tmp_path / "out"
    if version is None:
        with pytest.raises(ConfigError, match="a version that kept nothing of circuits"):
            export(tmp_path, "telco", "0123", path)
        return
    export(tmp_path, "telco", "0123", path)
    with path.open("rb") as file:
        head = next(msgpack.Unpacker(file))
    assert head == ["fedmq.transcript", version, "telco", "0123"]
    assert TranscriptFile.read(path).attempts[1].questions[0].body == opening
