"""``fedmq run`` and its sessions, when the owner or the service manager ends them."""

from __future__ import annotations

import asyncio

from fedmq.party.configuration.job import TrainingJob
from fedmq.party.operations.control import send_request
from tests.cli.command import fedmq as command
from tests.party.daemons import ACTIVE, PARTIES, PASSIVE, ExampleFederation

LONG = """
engine = "paillier"
engine_options = { key_bits = 512, allow_weak_keys = true }
[params]
num_boost_round = 500
max_bin = 8
"""


def begin_training(demo: ExampleFederation, model: str) -> str:
    """The session of a training that would take minutes; watched by nobody after its first tree."""
    job = demo.job(f'model = "{model}"\n{LONG}')
    request = {"do": "train", "job": TrainingJob.read(job).model_dump(mode="json")}

    async def watch_first_tree() -> str:
        async for event in send_request(demo.state(ACTIVE), request):
            if event["event"] == "progress" and event["done"]:
                return str(event["session"])
        raise AssertionError("the training ended")

    return asyncio.run(watch_first_tree())


def sessions(demo: ExampleFederation, party: str, session: str) -> str:
    status = command("status", demo.config(party), "--json").result
    return next(running["state"] for running in status["sessions"] if running["session"] == session)


def test_a_cancelled_training_ends_at_every_party(demo: ExampleFederation) -> None:
    session = begin_training(demo, "cancelled")
    done = command("cancel", demo.config(ACTIVE), session)
    assert (done.code, done.out) == (0, f"session {session} is cancelled\n")
    for party in PASSIVE:
        demo.daemons[party].wait_until_says("bank gave up: bank cancelled the session")
    assert {sessions(demo, party, session) for party in PARTIES} == {"failed"}
    again = command("cancel", demo.config(ACTIVE), session)
    assert again.code == 7
    assert again.error == f"session {session} does not run here; see: fedmq status"
    assert not [name for party in PARTIES for name in demo.models(party) if "cancelled" in name]


def test_a_daemon_told_to_stop_ends_within_five_seconds_and_is_waited_for(
    demo: ExampleFederation,
) -> None:
    session = begin_training(demo, "stopped")
    code, seconds = demo.daemons["telco"].terminate()
    assert code == 0
    assert seconds < 5
    demo.daemons[ACTIVE].wait_until_says(f"session {session}: waiting for telco (last seen")
    demo.start("telco")
    demo.daemons[ACTIVE].wait_until_says("telco was restarted, a new attempt is due")
    assert command("cancel", demo.config(ACTIVE), session).code == 0  # before it opens, or after
    demo.daemons["telco"].wait_until_says("bank gave up: bank cancelled the session")
    assert sessions(demo, ACTIVE, session) == "failed"


def test_idle_daemons_stop_at_once(demo: ExampleFederation) -> None:
    ended = [demo.daemons[party].terminate() for party in PARTIES]
    assert [code for code, _ in ended] == [0, 0, 0]
    assert max(seconds for _, seconds in ended) < 5
    assert not list(demo.folder.glob("*/state/control.sock"))
    demo.start(*PARTIES)
