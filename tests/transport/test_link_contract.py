"""What every link promises, in memory and on RabbitMQ alike."""

from __future__ import annotations

import asyncio

import pytest

from fedmq.errors import LinkError, Oversized, Unroutable
from fedmq.transport.link import MAX_MESSAGE_BYTES, Delivery, LinkState
from tests.transport.federations import Federation, Inbox

MIB = 1024 * 1024


async def test_a_message_arrives_with_its_id_sender_and_lane(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    _, inbox = await federation.opened("telco")

    await bank.publish("telco", "inference", b"\x00\xff", message_id="m1")

    delivery = await inbox.acked()
    assert delivery.body == b"\x00\xff"
    assert delivery.message_id == "m1"
    assert delivery.sender == "bank"
    assert delivery.lane == "inference"
    assert not delivery.redelivered


async def test_a_lane_is_read_while_its_party_is_there(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    telco = federation.link("telco")
    assert not await bank.is_read("telco", "bulk")

    await telco.open(Inbox())
    assert await bank.is_read("telco", "bulk")
    await telco.close()

    assert not await bank.is_read("telco", "bulk")
    assert not await bank.is_read("nobody", "bulk")


async def test_the_broker_is_reached_while_the_link_is_open(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    await bank.reach_broker()
    await bank.close()
    with pytest.raises(LinkError, match="bank"):
        await bank.reach_broker()


async def test_what_goes_in_bulk_comes_back_until_it_is_acknowledged(
    federation: Federation,
) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    await bank.publish("telco", "bulk", b"tables", message_id="m1")
    first = await inbox.next()
    assert (first.body, first.lane, first.sender) == (b"tables", "bulk", "bank")
    await telco.close()

    _, inbox = await federation.opened("telco")

    again = await inbox.acked()
    assert (again.message_id, again.redelivered) == ("m1", True)


async def test_messages_of_one_sender_arrive_in_order(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    _, inbox = await federation.opened("telco")

    for number in range(50):
        await bank.publish("telco", "training", b"%d" % number, message_id=str(number))

    assert [int((await inbox.acked()).body) for _ in range(50)] == list(range(50))


async def test_a_slow_handler_still_sees_the_order(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    seen: list[bytes] = []
    done = asyncio.Event()

    async def slow_at_first(delivery: Delivery) -> None:
        for _ in range(10 if delivery.body == b"0" else 0):
            await asyncio.sleep(0)
        seen.append(delivery.body)
        await delivery.ack()
        if len(seen) == 5:
            done.set()

    await federation.link("telco").open(slow_at_first)
    for number in range(5):
        await bank.publish("telco", "training", b"%d" % number, message_id=str(number))
    await asyncio.wait_for(done.wait(), 20)

    assert seen == [b"0", b"1", b"2", b"3", b"4"]


async def test_two_senders_reach_the_same_recipient(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    retail, _ = await federation.opened("retail")
    _, inbox = await federation.opened("telco")

    await bank.publish("telco", "training", b"b", message_id="1")
    await retail.publish("telco", "training", b"r", message_id="2")

    arrived = [await inbox.acked(), await inbox.acked()]
    assert {(delivery.sender, delivery.body) for delivery in arrived} == {
        ("bank", b"b"),
        ("retail", b"r"),
    }


async def test_a_lane_goes_on_while_the_other_is_held_up(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    inbox = Inbox()

    async def stuck_in_training(delivery: Delivery) -> None:
        if delivery.lane == "training":
            await asyncio.Event().wait()
        await inbox(delivery)

    await federation.link("telco").open(stuck_in_training)
    await bank.publish("telco", "training", b"", message_id="1")
    await bank.publish("telco", "inference", b"", message_id="2")

    assert (await inbox.acked()).message_id == "2"


async def test_a_party_can_write_to_itself(federation: Federation) -> None:
    bank, inbox = await federation.opened("bank")

    await bank.publish("bank", "training", b"note", message_id="1")

    assert (await inbox.acked()).sender == "bank"


async def test_a_message_waits_for_a_recipient_that_is_away(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")

    await bank.publish("telco", "training", b"early", message_id="1")

    _, inbox = await federation.opened("telco")
    delivery = await inbox.acked()
    assert delivery.body == b"early"
    assert not delivery.redelivered


async def test_what_was_not_acknowledged_comes_back_in_order(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    for number in range(3):
        await bank.publish("telco", "training", b"", message_id=str(number))
        await inbox.next()

    await telco.close()
    again = Inbox()
    await telco.open(again)

    came_back = [await again.acked() for _ in range(3)]
    assert [delivery.message_id for delivery in came_back] == ["0", "1", "2"]
    assert all(delivery.redelivered for delivery in came_back)


async def test_what_was_acknowledged_is_gone(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    await bank.publish("telco", "training", b"", message_id="settled")
    await inbox.acked()

    await telco.close()
    again = Inbox()
    await telco.open(again)
    await bank.publish("telco", "training", b"", message_id="next")

    assert (await again.acked()).message_id == "next"


async def test_settling_counts_once(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    await bank.publish("telco", "training", b"", message_id="1")
    delivery = await inbox.next()

    await asyncio.gather(delivery.ack(), delivery.ack(), delivery.dead_letter("too late"))

    await bank.publish("telco", "training", b"", message_id="2")
    assert (await inbox.acked()).message_id == "2"
    assert telco.dead_lettered == 0
    assert telco.connected


async def test_settling_after_close_is_harmless_and_without_effect(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    await bank.publish("telco", "training", b"", message_id="1")
    await bank.publish("telco", "training", b"", message_id="2")
    first, second = await inbox.next(), await inbox.next()

    await telco.close()
    await first.ack()
    await second.dead_letter("too late")

    _, again = await federation.opened("telco")
    assert (await again.acked()).message_id == "1"
    assert (await again.acked()).message_id == "2"
    assert telco.dead_lettered == 0


async def test_a_refused_message_goes_to_the_dead_letters_of_its_recipient(
    federation: Federation,
) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    await bank.publish("telco", "training", b"bad", message_id="7")

    await (await inbox.next()).dead_letter("no message of this protocol")

    assert await federation.dead_letter("telco") == ("7", b"bad")
    assert telco.dead_lettered == 1


async def test_a_message_that_is_refused_again_counts_once(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    for body in (b"bad", b"bad", b"worse"):  # a broker delivers again what it lost sight of
        await bank.publish("telco", "training", body, message_id="7")
        await (await inbox.next()).dead_letter("no message of this protocol")

    assert telco.dead_lettered == 2


async def test_what_is_refused_of_the_bulk_is_gone_and_counts_as_no_dead_letter(
    federation: Federation,
) -> None:
    bank, _ = await federation.opened("bank")
    telco, inbox = await federation.opened("telco")
    await bank.publish("telco", "bulk", b"bad", message_id="7")
    await (await inbox.next()).dead_letter("no message of this protocol")
    await bank.publish("telco", "training", b"bad", message_id="8")
    await (await inbox.next()).dead_letter("no message of this protocol")

    assert await federation.dead_letter("telco") == ("8", b"bad")
    assert telco.dead_lettered == 1


async def test_a_handler_that_raises_loses_one_message_and_goes_on(
    federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    bank, _ = await federation.opened("bank")
    inbox = Inbox()

    async def choosy(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            raise ValueError("cannot read this")
        await inbox(delivery)

    await federation.link("telco").open(choosy)
    await bank.publish("telco", "training", b"bad", message_id="7")
    await bank.publish("telco", "training", b"good", message_id="8")

    assert (await inbox.acked()).body == b"good"
    assert await federation.dead_letter("telco") == ("7", b"bad")
    assert "dead-lettered message 7 from bank: ValueError: cannot read this" in caplog.text


async def test_a_handler_whose_own_work_was_cancelled_does_not_stall_its_lane(
    federation: Federation,
) -> None:
    bank, _ = await federation.opened("bank")
    inbox = Inbox()

    async def waits_for_the_cancelled(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            raise asyncio.CancelledError
        await inbox(delivery)

    await federation.link("telco").open(waits_for_the_cancelled)
    await bank.publish("telco", "training", b"bad", message_id="7")
    await bank.publish("telco", "training", b"good", message_id="8")

    assert (await inbox.acked()).body == b"good"


@pytest.mark.parametrize("stranger", ["nobody", "telco.training", "*", "#", "", "x" * 300])
async def test_a_recipient_without_a_queue_is_named(federation: Federation, stranger: str) -> None:
    bank, _ = await federation.opened("bank")

    with pytest.raises(Unroutable, match=r"bank: .* has no training queue"):
        await bank.publish(stranger, "training", b"", message_id="1")
    assert bank.connected


async def test_the_largest_message_arrives_whole(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    _, inbox = await federation.opened("telco")
    body = bytes(range(256)) * (MIB // 256)
    largest = bytes(MAX_MESSAGE_BYTES)

    await bank.publish("telco", "training", body, message_id="1")
    await bank.publish("telco", "training", largest, message_id="2")

    assert (await inbox.acked()).body == body
    assert (await inbox.acked()).body == largest


async def test_a_larger_message_is_refused_by_size(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")

    with pytest.raises(Oversized, match=f"bank: a message of {MAX_MESSAGE_BYTES + 1} bytes"):
        await bank.publish("telco", "training", bytes(MAX_MESSAGE_BYTES + 1), message_id="1")


async def test_nothing_is_published_before_open_and_after_close(federation: Federation) -> None:
    bank = federation.link("bank")
    with pytest.raises(LinkError, match="bank"):
        await bank.publish("telco", "training", b"", message_id="1")

    await bank.open(Inbox())
    assert bank.connected
    await bank.close()

    assert not bank.connected
    with pytest.raises(LinkError, match="bank"):
        await bank.publish("telco", "training", b"", message_id="2")


async def test_many_publishes_at_once_are_all_confirmed(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    _, inbox = await federation.opened("telco")

    await asyncio.gather(
        *(bank.publish("telco", "training", b"x" * 1000, message_id=str(i)) for i in range(500))
    )

    arrived = {(await inbox.acked()).message_id for _ in range(500)}
    assert arrived == {str(number) for number in range(500)}


async def test_a_handler_may_publish(federation: Federation) -> None:
    bank, answers = await federation.opened("bank")
    telco = federation.link("telco")

    async def echo(delivery: Delivery) -> None:
        await telco.publish(delivery.sender, delivery.lane, delivery.body, message_id="answer")
        await delivery.ack()

    await bank.publish("telco", "inference", b"hello", message_id="question")
    await telco.open(echo)

    answer = await answers.acked()
    assert (answer.message_id, answer.body) == ("answer", b"hello")


async def test_a_second_reader_of_the_same_party_is_refused(federation: Federation) -> None:
    await federation.opened("bank")

    with pytest.raises(LinkError, match="bank: another connection already reads"):
        await federation.opened("bank")


async def test_a_link_that_is_open_is_not_opened_again(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")

    with pytest.raises(LinkError, match="bank"):
        await bank.open(Inbox())
    assert bank.connected


async def test_the_state_is_reported(federation: Federation) -> None:
    states: list[LinkState] = []
    bank = federation.link("bank", on_state=states.append)

    await bank.open(Inbox())
    await bank.close()

    assert states == [LinkState(True, "connected"), LinkState(False, "closed")]


async def test_an_observer_that_raises_does_no_harm(
    federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    def observer(state: LinkState) -> None:
        raise RuntimeError("display is gone")

    bank = federation.link("bank", on_state=observer)
    await bank.open(Inbox())

    assert bank.connected
    assert "bank: the observer of the link's state failed" in caplog.text


async def test_a_post_arrives_on_the_online_lane(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    _, inbox = await federation.opened("telco")

    await bank.post("telco", b"hop", message_id="h1", expires=5.0)

    delivery = await inbox.next()
    assert (delivery.lane, delivery.body, delivery.sender) == ("online", b"hop", "bank")
    await delivery.ack()


async def test_a_post_through_a_closed_link_fails(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")
    await bank.close()

    with pytest.raises(LinkError):
        await bank.post("telco", b"", message_id="h1", expires=5.0)


async def test_a_post_is_no_larger_than_any_other_message(federation: Federation) -> None:
    bank, _ = await federation.opened("bank")

    with pytest.raises(Oversized):
        await bank.post("telco", bytes(MAX_MESSAGE_BYTES + 1), message_id="h1", expires=5.0)
