"""Requests for scores by message, from a queue of the label holder's own systems.

The queue may lie on another broker than the federation's, so that nobody else sees what the label
holder's systems ask, and what they are answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
from random import Random
from typing import Any

from fedmq.errors import LinkError
from fedmq.party.configuration.online import RequestsSection
from fedmq.party.online.scoring.prediction_service import PredictionService
from fedmq.party.online.scoring.request import PredictRequest, RequestError
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.backoff import Backoff
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection
from fedmq.transport.rabbitmq.received import Received

__all__ = ["RequestQueue"]

log = logging.getLogger(__name__)


class RequestQueue:
    """Reads ``section.queue``; each answer goes to the request's ``reply_to``.

    A request is acknowledged once it is answered, so none is lost when the daemon or the broker
    is restarted; it may then be answered twice.
    """

    def __init__(self, section: RequestsSection, predictions: PredictionService) -> None:
        self.trouble = ""
        """Why no requests are read now; empty while they are."""
        self._section = section
        self._predictions = predictions
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Connect, and stay connected."""
        self._tasks.spawn(self._run(), name="requests")

    async def close(self) -> None:
        """Read no more; the broker delivers again what was not answered."""
        await self._tasks.close()

    async def _run(self) -> None:
        address = BrokerAddress.parse(self._section.broker.get_secret_value())
        delays = Backoff(limit=5.0).delays(Random())
        while True:
            try:
                connection = await BrokerConnection.open(address, "fedmq requests")
                try:
                    await self._serve(connection)
                finally:
                    await connection.close()
                delays = Backoff(limit=5.0).delays(Random())
            except LinkError as error:
                self._note(str(error))
            await asyncio.sleep(next(delays))

    async def _serve(self, connection: BrokerConnection) -> None:
        async def receive(message: Received) -> None:
            self._tasks.spawn(self._answer(connection, message))

        await connection.consume(self._section.queue, receive)
        log.info("requests are read from %s", self._section.queue)
        self.trouble = ""
        self._note(await connection.ended())

    def _note(self, trouble: str) -> None:
        self.trouble = f"online.requests: {trouble}"
        log.warning("%s", self.trouble)

    async def _answer(self, connection: BrokerConnection, message: Received) -> None:
        answer = json.dumps(await self._response(message.body)).encode()
        if message.reply_to:
            try:
                await connection.reply(message.reply_to, answer, message.correlation_id)
            except LinkError as error:
                log.warning("requests: an answer was not sent: %s", error)
                # What is not settled comes again, but on another connection only.
                connection.give_up(str(error))
                return
        await message.settle(accept=True)

    async def _response(self, body: bytes) -> dict[str, Any]:
        try:
            with self._predictions.counters.request():
                model, request = _read(body)
                prediction = await self._predictions.answer(model, request)
        except RequestError as error:
            return {"status": error.http_status, "error": str(error)}
        except Exception as error:  # answered as well, or the message would come again for ever
            log.exception("requests: a request failed")
            return {"status": 500, "error": f"internal error: {type(error).__name__}"}
        return {"status": 200, **prediction.json()}


def _read(body: bytes) -> tuple[str, PredictRequest]:
    """The model and the request: as over HTTP, with the field ``model`` in the body as well."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise RequestError(400, "body: no JSON object")
    model = fields.pop("model", "production")
    if not isinstance(model, str):
        raise RequestError(422, "model: not a string")
    return model, PredictRequest.read(json.dumps(fields).encode())
