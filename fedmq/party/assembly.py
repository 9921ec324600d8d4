"""How the parts of a daemon are put together; nothing is started here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmq.errors import ConfigError
from fedmq.large_array import limit_memory, too_many_files
from fedmq.messages.body import Body
from fedmq.party.compute.dask import DaskPool
from fedmq.party.compute.pool import ComputePool
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.configuration.http import HttpSection, OpenIdSection
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.owner_consent import OwnerConsent
from fedmq.party.consent.policy_consent import PolicyConsent
from fedmq.party.consent.terms import spent_sums
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.identity.sealer import HandshakeSender, Sealer
from fedmq.party.online.lane import OnlineLane
from fedmq.party.operations.broker import BrokerAccess
from fedmq.party.operations.consent_commands import ConsentCommands
from fedmq.party.operations.control import ControlServer
from fedmq.party.operations.dead_letters import DeadLetterNotes
from fedmq.party.operations.health import FileCheck, Probe, clock_warnings
from fedmq.party.operations.owner_commands import DataCommands, OwnerCommands, PartyCommands
from fedmq.party.operations.record_commands import RecordCommands
from fedmq.party.operations.reload import FileReload
from fedmq.party.operations.retention import Retention
from fedmq.party.services.alignment import AlignmentService
from fedmq.party.services.deployment import DeploymentService
from fedmq.party.services.inference import InferenceService
from fedmq.party.services.model_request import ModelRequestService
from fedmq.party.services.overlap import OverlapService
from fedmq.party.services.screen import ScreenService
from fedmq.party.services.service import Command, KeptModelsService, PartyContext, Service
from fedmq.party.services.training import TrainingService
from fedmq.party.sessions.observe import Observation
from fedmq.party.sessions.recovery import (
    Expiry,
    Opening,
    RestartNotice,
    Resumption,
    UnexpectedMessages,
    UnsequencedSender,
)
from fedmq.party.sessions.runner import Inbox
from fedmq.party.sessions.sessions import OnProgress, Sessions
from fedmq.party.store.database import Database
from fedmq.party.store.documents import ModelStore
from fedmq.party.store.journal import ConsentRequestStore, OpenedSessions, SessionStore
from fedmq.party.telemetry.metrics import Counters
from fedmq.transport.link import Link, OnState
from fedmq.transport.rabbitmq.link import RabbitMQLink

if TYPE_CHECKING:
    from fedmq.party.console.console import Console
    from fedmq.party.http.commands import Answer
    from fedmq.party.http.identity_provider import IdentityProvider
    from fedmq.party.http.server import HttpServer
    from fedmq.party.telemetry.spans import OnlineSpans, Telemetry

__all__ = ["SERVICES", "DaemonParts", "assemble"]


SERVICES: list[Callable[[PartyContext], Service]] = [
    AlignmentService,
    InferenceService,
    KeptModelsService,
    ModelRequestService,
    OverlapService,
    ScreenService,
]
"""Services that need only the party's context; a new session kind adds its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonParts:
    """The parts a daemon starts and stops, and the context that its services share."""

    context: PartyContext
    link: Link
    sealer: Sealer
    inbox: Inbox
    database: Database
    online: OnlineLane
    deployment: DeploymentService
    resumption: Resumption
    expiry: Expiry
    retention: Retention
    reload: FileReload
    file_check: FileCheck
    control: ControlServer
    http: HttpServer | None
    telemetry: Telemetry | None


def assemble(files: PartyFiles, traces: Path | None, on_link_state: OnState) -> DaemonParts:
    """Build the parts of the daemon that ``files`` configure.

    ``traces``: a folder for the timeline of each session.

    Raises:
        ConfigError: ``files`` need a package that is missing, or a state file is unusable.
        DataError: a state file is damaged.
    """
    config, federation, sealer = files.config, files.federation, files.sealer
    if config.state.exists() and not config.state.is_dir():
        raise ConfigError(
            f"state: {config.state} is no folder; name another one under state in the party's file"
        )
    access = BrokerAccess.of(config)
    access.check_owner(config)
    link = _link(access, config, federation.name, on_link_state)
    sealer.connect_by(HandshakeSender(link).send)
    counters = Counters()
    inbox = Inbox(
        federation.name,
        config.party,
        sealer=sealer,
        on_refused=DeadLetterNotes(config.state).add,
        counters=counters,
    )
    telemetry = _telemetry(config)
    observation = Observation(
        counters=counters, traces=traces, recordings=config.recordings, telemetry=telemetry
    )
    database = Database(config.state / "fedmq.sqlite")
    session_store = SessionStore(database)
    sender = UnsequencedSender(federation.name, link, sealer)
    notice = RestartNotice(session_store, sender, federation.active)
    context = _context(files, link, inbox, observation, session_store, notice)
    online = OnlineLane(
        config=config,
        federation=federation,
        link=link,
        sealer=sealer,
        consent=context.consent,
        model_store=context.model_store,
        pool=context.pool,
        heard=counters.heard,
        spans=_online_spans(config, federation.name, telemetry),
    )
    training, deployment = TrainingService(context), DeploymentService(context, online)
    services = (
        training,
        deployment,
        *(service(context) for service in SERVICES),
    )
    resumption = Resumption(
        store=session_store,
        sessions=context.sessions,
        notice=notice,
        trainings=training if context.is_active else None,
        state=config.state,
        withdraw=context.owner_consent.withdraw,
    )
    expiry = Expiry(
        store=session_store,
        sessions=context.sessions,
        resumption=resumption,
        # The active party's own trainings wait without limit.
        most_days=lambda: math.inf if context.is_active else context.config.policy.most_idle_days,
    )
    unexpected_messages = UnexpectedMessages(
        party=config.party,
        active=federation.active,
        openings=_openings(*services),
        sessions=context.sessions,
        store=session_store,
        opened_sessions=OpenedSessions(config.state),
        resumption=resumption,
        consent=context.consent,
        sender=sender,
    )
    # Set late: these services open sessions, to which the inbox delivers.
    inbox.on_unexpected, inbox.on_online = unexpected_messages.take, online.receive
    if sealer.sealed:  # without seals anybody at the broker could have sent what cannot be read
        inbox.on_unreadable = unexpected_messages.refuse_unreadable
    reload = FileReload(files, context, online.scorer, access.ssl_context)
    file_check = FileCheck(lambda: context.config, stale=reload.stale)
    probe = Probe(
        link,
        context.sessions,
        online.scorer,
        warnings=lambda: (
            *file_check.troubles,
            *online.troubles,
            *clock_warnings(counters.clocks),
            *filter(None, [too_many_files()]),
            *(() if context.is_active else context.config.policy.warnings()),
            *(() if context.is_active else context.config.online.warnings()),
        ),
    )
    owner = OwnerCommands(
        context,
        link=link,
        inbox=inbox,
        sealer=sealer,
        resumption=resumption,
        unexpected_messages=unexpected_messages,
        probe=probe,
        reload=reload,
        file_check=file_check,
        drift=online.drift,
    )
    commands = _commands(
        owner,
        ConsentCommands(context, reload),
        DataCommands(context),
        PartyCommands(context, reload, counters),
        RecordCommands(context, inbox),
        *services,
    )
    control = ControlServer(config.state, commands, context.consent.record)
    http = _http_server(context, online, counters, probe, commands, control.answer)
    return DaemonParts(
        context=context,
        link=link,
        sealer=sealer,
        inbox=inbox,
        database=database,
        online=online,
        deployment=deployment,
        resumption=resumption,
        expiry=expiry,
        retention=Retention(context),
        reload=reload,
        file_check=file_check,
        control=control,
        http=http,
        telemetry=telemetry,
    )


def _context(
    files: PartyFiles,
    link: Link,
    inbox: Inbox,
    observation: Observation,
    session_store: SessionStore,
    notice: RestartNotice,
) -> PartyContext:
    config, federation = files.config, files.federation
    pool = _pool(config)
    is_active = config.party == federation.active
    sessions = Sessions(
        federation=federation.name,
        link=link,
        inbox=inbox,
        pool=pool,
        retry=config.retry,
        sealer=files.sealer,
        observation=observation,
        # The active party opens the next attempt itself, so it notifies no party.
        on_idle=(lambda _, __: None) if is_active else notice.on_idle,
    )
    consent = PolicyConsent(config.party, config.policy, AuditLog(config.state))
    return PartyContext(
        config,
        federation,
        ModelStore(config.state),
        pool,
        sessions,
        consent,
        _owner_consent(config.party, consent, session_store.database),
        session_store,
        files.sealer,
    )


def _owner_consent(party: str, consent: PolicyConsent, database: Database) -> OwnerConsent:
    async def spent() -> dict[str, Any]:
        most = consent.policy.sums_bound
        return {**consent.used_today, "answered": await spent_sums(database, most)}

    store = ConsentRequestStore(database)
    return OwnerConsent(party, lambda: consent.policy, store, consent.audit.log, spent)


def _openings(*services: Service) -> Mapping[type[Body], Opening]:
    return {body: join for service in services for body, join in service.opened_sessions.items()}


def _commands(*services: Service) -> dict[str, Command]:
    return {name: command for service in services for name, command in service.commands.items()}


def _link(access: BrokerAccess, config: PartyFile, federation: str, on_state: OnState) -> Link:
    return RabbitMQLink(
        access.url,
        federation,
        config.party,
        on_state=on_state,
        ssl_context=access.ssl_context,
        wait=config.wait_for_broker,
    )


def _pool(config: PartyFile) -> ComputePool:
    compute = config.compute
    limit_memory(compute.memory_bytes, config.state)
    return DaskPool(compute.dask) if compute.dask else ProcessPool(compute.workers)


def _http_server(
    context: PartyContext,
    online: OnlineLane,
    counters: Counters,
    probe: Probe,
    commands: dict[str, Command],
    answer: Answer,
) -> HttpServer | None:
    """The server that ``[http]`` asks for; its console adds a command to ``commands``.

    ``answer``: to what programs on other machines request.
    """
    section = context.config.http
    commands["console"] = _no_console
    if section is None:
        return None
    try:
        from fedmq.party.http.commands import commands_router
        from fedmq.party.http.monitoring import (
            AnsweringCollector,
            DriftCollector,
            LookupCollector,
            ScoreCollector,
            health_router,
            metrics_router,
        )
        from fedmq.party.http.predict import predict_router
        from fedmq.party.http.server import HttpServer
    except ImportError:
        raise ConfigError("[http] needs more packages; run: pip install 'fedmq[http]'") from None
    scores = (
        ScoreCollector(online.predictions)
        if context.is_active
        else AnsweringCollector(online.answering)
    )
    routers = [
        health_router(probe.health),
        metrics_router(
            counters,
            probe.gauges,
            scores,
            LookupCollector(online.source.counters),
            DriftCollector(online.drift),
        ),
    ]
    if context.is_active:
        routers.append(predict_router(online.predictions, section.body_bytes))
    if section.operators:
        routers.append(commands_router(section.operators, answer))
    on_close = None
    provider = None if section.openid is None else _identity_provider(section.openid)
    if section.console:
        console = _console(section, context, commands, lambda: server.url, provider)
        commands["console"], on_close = console.invite, console.close
        routers.append(console.router)
    admits = None if provider is None else provider.admits
    server = HttpServer(section, routers, on_close, admits)
    return server


def _identity_provider(section: OpenIdSection) -> IdentityProvider:
    try:
        from fedmq.party.http.identity_provider import IdentityProvider
    except ImportError:
        raise ConfigError(
            "[http.openid] needs more packages; run: pip install 'fedmq[openid]'"
        ) from None
    return IdentityProvider(section)


def _console(
    section: HttpSection,
    context: PartyContext,
    commands: Mapping[str, Command],
    url: Callable[[], str],
    provider: IdentityProvider | None,
) -> Console:
    try:
        from fedmq.party.console.console import Console
    except ImportError:
        raise ConfigError(
            "[http] console = true needs more packages; run: pip install 'fedmq[console]'"
        ) from None
    return Console(section, context, commands, url, provider)


async def _no_console(_: Mapping[str, Any], __: OnProgress) -> Any:
    raise ConfigError(
        "this daemon serves no console: write console = true under [http] in PARTY.toml, and "
        "start it again"
    )


def _telemetry(config: PartyFile) -> Telemetry | None:
    if config.telemetry is None:
        return None
    from fedmq.party.telemetry.spans import Telemetry

    return Telemetry.to(config.telemetry.endpoint, config.party)


def _online_spans(
    config: PartyFile, federation: str, telemetry: Telemetry | None
) -> OnlineSpans | None:
    if telemetry is None or config.telemetry is None:
        return None
    from fedmq.party.telemetry.spans import OnlineSpans

    return OnlineSpans(telemetry, federation, config.party, config.telemetry.scores)
