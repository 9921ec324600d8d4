"""``[online]`` of a party's file: scores that somebody waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from fedmq.party.configuration.toml_file import Section
from fedmq.protocol.online.options import Degrade, Mode
from fedmq.transport.rabbitmq.address import BrokerAddress

__all__ = ["DriftSection", "LookupSection", "OnlineSection", "RequestsSection"]

Seconds = Annotated[float, Field(gt=0, le=3600)]
Rows = Annotated[int, Field(ge=1)]


def _url(url: SecretStr) -> SecretStr:
    BrokerAddress.parse(url.get_secret_value())
    return url


class RequestsSection(Section):
    """A queue from which requests are read, on a broker of the active party's choice."""

    broker: Annotated[SecretStr, AfterValidator(_url)]
    """Its URL, with a user who may read the queue and write to the default exchange."""
    queue: Annotated[str, Field(min_length=1, max_length=255)]
    """The queue's name; it must exist."""


class LookupSection(Section):
    """How a serving source that is a database is asked for rows."""

    enabled: bool = True
    """Whether rows are looked up by id when they are asked for; otherwise all lie in memory."""
    connections: Annotated[int, Field(ge=1, le=100)] = 4
    """Connections that are kept open, and lookups at once."""
    timeout: Seconds = 0.5
    """Seconds for a lookup; then the party has no answer."""
    entries: Rows = 100_000
    """Ids whose rows are remembered at most, per model; for ``max_age``, unknown ids too."""


class DriftSection(Section):
    """How the people who are scored are compared with those of the training."""

    rows: Annotated[int, Field(ge=0)] = 10_000
    """Of about so many people, those scored last, the values are counted; 0: drift is not watched.
    """
    least_rows: Rows = 1_000
    """Fewer people say nothing."""
    threshold: Annotated[float, Field(gt=0)] = 0.25
    """A population stability index above it is an alarm: of a column, or of the scores."""
    show_alarm: bool = True
    """Whether answers say that there is an alarm, and nothing else of it."""


class OnlineSection(Section):
    """How scores are made (at the active party), and what is answered (at the others)."""

    mode: Mode = "hop"
    """What the active party asks for: ``hop``, ``bitmap`` or ``sealed``; see the page on online
    scores. With ``sealed`` files and evaluations are scored so, too, unless ``--mode`` says hop."""
    degrade: Degrade = "fail"
    """When a party is away: ``fail``, ``partial`` or ``active_only``. Mode ``sealed`` guesses
    nothing, and always fails unless a fallback model scores."""
    unknown: Literal["null", "fallback", "directions"] = "null"
    """The score of a person whom a party does not know, online and in files: none; with
    ``fallback`` that of the fallback model without this party, which a job with ``fallback = true``
    trains, and none where there is no such model; or that of default directions, where the model
    was trained on people whom this party lacks (``join = "left"``), and otherwise none. With
    ``fallback`` such models also score where a party has left, or online does not answer, before
    ``degrade`` says what else comes."""
    deadline: Seconds = 2.0
    """How long a request may take if it does not say itself."""
    ask_again: Seconds = 0.2
    """After how long a question is repeated."""
    away: Seconds = 0.8
    """After how long without an answer a party counts as away, unless degrade is fail."""
    batch_rows: Rows = 250
    """Rows that walk together at most; larger requests are cut."""
    batches: Rows = 8
    """Batches under way at once, two at most in mode sealed; further requests wait and walk
    together."""
    window: Annotated[float, Field(ge=0, le=1)] = 0.002
    """Seconds for which requests wait for others while batches are under way."""
    request_rows: Rows = 10_000
    """Rows of one request at most."""
    queue_rows: Rows = 50_000
    """Rows that may wait at once; beyond, requests are turned away."""
    max_age: Seconds = 30.0
    """How old the rows in memory may be before their file is looked at again, or they are looked
    up again."""

    requests: RequestsSection | None = None
    """Requests by message; none are read when left out."""

    drift: DriftSection = DriftSection()
    """Whether the people who are scored drift from those of the training."""

    lookup: LookupSection = LookupSection()
    """Rows of a database; of no matter where the serving source is a file."""

    modes: tuple[Mode, ...] = ("hop", "bitmap", "sealed")
    """What this party answers, when others ask, online and in files; files in mode ``hop`` where
    ``hop`` or ``bitmap`` is among them. ``sealed`` alone shows no direction to anybody."""
    rows_per_second: Rows | None = None
    """Rows that a caller may ask about per second, on average over ten."""
    scores_per_id: Rows | None = None
    """How often a caller may ask for scores of the same id per hour; in mode ``sealed`` 10 when
    left out."""
    records_per_id: Rows | None = None
    """Distinct records of a model that a caller may ask for about the same id per hour (mode
    ``hop``); twice as many as one score can meet when left out."""
    audit: bool = True
    """Whether to write down who asked about whom; ids as keyed hashes."""
    audit_days: Annotated[int, Field(ge=0)] | None = None
    """For how many days before today that is kept; for ever when left out."""

    def warnings(self) -> Iterator[str]:
        """What an owner should know whose file does not say which modes this party answers."""
        if "modes" not in self.model_fields_set:
            yield (
                "the [online] answers in modes hop and bitmap, which show the active party on "
                "which side of thresholds each person stands; write modes = "
                '["sealed"] to show scores alone, or list the modes to accept that'
            )
