from __future__ import annotations

import pytest

import fedmq
from fedmq.errors import LinkError
from tests.boosting.tables import scattered
from tests.rabbitmq_node import RabbitNode

X, Y = scattered(300, 6, seed=4, missing=0.1)


def train(broker: str) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=X[:, :2],
        label=Y,
        passive={"telco": X[:, 2:4], "retail": X[:, 4:]},
        params=fedmq.TrainParams(num_boost_round=3, max_depth=3, max_bin=16),
        engine="paillier",
        engine_options={"key_bits": 512, "allow_weak_keys": True},
        broker=broker,
        workers=1,
    )


def shares(model: fedmq.SimulatedModel) -> list[str]:
    return [share.dumps() for share in (model.share, *model.passive_shares.values())]


def test_a_broker_makes_no_difference(node: RabbitNode, caplog: pytest.LogCaptureFixture) -> None:
    over_rabbitmq, in_memory = train(node.url()), train("memory://")
    assert not caplog.messages
    assert shares(over_rabbitmq) == shares(in_memory)
    for pair, kinds in in_memory.traffic.items():
        sent = {kind: volume.messages for kind, volume in kinds.items() if kind != "acknowledge"}
        there = over_rabbitmq.traffic[pair]
        assert {kind: there[kind].messages for kind in sent} == sent


def test_a_user_who_may_declare_nothing_cannot_simulate(node: RabbitNode) -> None:
    with pytest.raises(LinkError, match=r"(?i)refused|access"):
        train(node.url("bank"))


def test_a_broker_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LinkError, match=r"^broker 127\.0\.0\.1:1.* cannot be reached"):
        train("amqp://nobody:secret@127.0.0.1:1/")
