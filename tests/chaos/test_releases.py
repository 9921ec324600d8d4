"""Daemons of an older release beside those of today: `make older-release` builds one for it.

``FEDMQ_OLDER`` names its ``fedmq``.
"""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from tests.chaos.federation import PARTIES, ChaosFederation

OLDER = os.environ.get("FEDMQ_OLDER", "")
TREES = 3

pytestmark = [
    pytest.mark.skipif(not OLDER, reason="no older release is built: make older-release"),
    pytest.mark.long,
    pytest.mark.timeout(600),
]


def start_older(federation: ChaosFederation, party: str) -> None:
    """Start the daemon of ``party`` by the older release."""
    daemon = federation.daemons[party]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with daemon.log.open("ab") as log:
        process = subprocess.Popen(
            [OLDER, "run", "-v", daemon.file],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=federation.folder,
            start_new_session=True,
        )
    daemon.adopt(process)


def end_of(federation: ChaosFederation, model: str, session: str) -> str:
    """``finished``, or what the active party's owner reads of why it does not go on or failed."""
    begun = time.monotonic()
    while time.monotonic() < begun + 120:
        state, reason = federation.settled(model) or ("", "")
        if state not in ("", "running"):
            return str(federation.session(session).get("reason")) if reason else state
        waiting = " ".join(federation.session(session).get("waiting", []))
        if "bring" in waiting and time.monotonic() > begun + 30:  # it may only have been slow
            federation.ask("bank", "cancel", session=session)
            return waiting
        time.sleep(0.2)
    raise AssertionError(f"nobody says why {model} does not go on\n{federation.tell()}")


def read_again(federation: ChaosFederation, model: str) -> dict[str, str]:
    """Every party's share of ``model`` as this release writes it, under one name."""
    return {
        party: (ActiveShare if party == "bank" else PassiveShare)
        .loads(text, party)
        .model_copy(update={"model_id": "m"})
        .dumps()
        for party, text in federation.shares(model).items()
    }


@pytest.mark.parametrize("older", [("telco",), ("telco", "retail")])
def test_older_passive_parties_train_alike_or_both_releases_are_named(
    federation: ChaosFederation, older: tuple[str, ...]
) -> None:
    federation.start()
    federation.train("calm", TREES)
    federation.await_shares(["calm"], 120)
    for party in older:
        federation.daemons[party].terminate()
    # What today's fedmq has kept is not for an older one.
    for party in older:
        federation.daemons[party].state.rename(federation.folder / f"{party}-of-today")
        start_older(federation, party)

    ends = {}
    for engine, options in {
        "plain": {},
        "lattice": {},
        "ou": {"key_bits": 512, "allow_weak_keys": True},
    }.items():
        session = federation.train(engine, TREES, engine, options)
        ends[engine] = end_of(federation, engine, session)

    print(f"older {older}: {ends}")
    assert ends["plain"] == "finished"
    for engine, end in ends.items():
        if end == "finished":
            share = federation.shares(engine)["bank"].replace(f'"{engine}"', '"calm"')
            assert share == federation.shares("calm")["bank"]
        else:
            assert "fedmq" in end, end


def test_a_party_is_brought_to_this_release_with_its_state(federation: ChaosFederation) -> None:
    federation.bank.start()
    federation.daemons["retail"].start()
    start_older(federation, "telco")
    federation.train("before", TREES)
    federation.await_shares(["before"], 120)
    ids = [f"p{row}" for row in range(20)]
    scores = federation.ask("bank", "predict", model="before", ids=ids)["scores"]

    telco = federation.daemons["telco"]
    telco.terminate()
    telco.start()
    assert federation.ask("bank", "predict", model="before", ids=ids)["scores"] == scores
    federation.train("after", TREES)
    federation.await_shares(["after"], 120)
    # What an older release leaves out, as it does not know it, has its default.
    assert read_again(federation, "before") == read_again(federation, "after")
    assert set(federation.shares("after")) == set(PARTIES)


def test_an_older_release_names_the_version_of_a_newer_state_folder(
    federation: ChaosFederation,
) -> None:
    telco = federation.daemons["telco"]
    telco.start()
    telco.terminate()
    kept = {path: path.read_bytes() for path in telco.state.rglob("*.sqlite")}

    done = subprocess.run(
        [OLDER, "run", telco.file], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 3, done.stderr
    assert "a newer fedmq has made it" in done.stderr
    assert {path: path.read_bytes() for path in kept} == kept
