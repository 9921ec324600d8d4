"""Four eyes: with ``activate = "two"`` a switch waits for another person than who asked for it."""

from __future__ import annotations

import asyncio
import getpass
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedmq.errors import DaemonError, Refused
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.person import Person
from fedmq.party.consent.terms import asked_in_words, terms_in_words
from fedmq.transport.rabbitmq.certificates import Authority
from tests.party.daemons_in_memory import DaemonsInMemory

US = getpass.getuser()  # who is at the other end of the control socket
OLGA = Person.proven("olga")


def wants_two(demo: DaemonsInMemory, *parties: str, more: str = "") -> None:
    for party in parties:
        path = demo.folder / party / "party.toml"
        path.write_text(path.read_text() + f'activate = "two"\n{more}')


async def approve(demo: DaemonsInMemory, party: str, person: Person) -> None:
    """Approve what waits at ``party``, as ``person``."""
    request = (await demo.waiting(party))["request"]
    await demo.daemons[party].parts.context.owner_consent.approve(request, person)


def asked(command: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(command)


async def serving(demo: DaemonsInMemory) -> dict[str, str]:
    found = (await demo.ask("bank", "serving"))["models"]
    return {name: of["model"] for name, of in found.items() if name != of["model"]}


def audited(demo: DaemonsInMemory, party: str, event: str) -> list[dict[str, Any]]:
    log = AuditLog(demo.folder / party / "state")
    return [entry for entry in log.entries() if entry["event"] == event]


async def test_an_activation_and_a_rollback_wait_for_another_person_and_the_log_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    wants_two(demo, "bank")
    async with demo:
        for model in ("old", "new"):
            await demo.train(model, 1)
            switching = asked(demo.ask("bank", "activate", model=model))
            request = await demo.waiting("bank")
            assert asked_in_words(request) == f"{US} asks to serve model {model} as production"
            assert not switching.done()
            await approve(demo, "bank", OLGA)
            assert (await switching)["model"] == model
        back = asked(demo.ask("bank", "rollback"))
        words = dict(terms_in_words(await demo.waiting("bank")))
        assert words["served until now"] == "new"
        assert await serving(demo) == {"production": "new"}
        await approve(demo, "bank", OLGA)
        assert (await back)["model"] == "old"
    entries = audited(demo, "bank", "owner agreed")
    assert [(entry["activation"], entry["asked_by"], entry["by"]) for entry in entries] == [
        ("old", US, "olga"),
        ("new", US, "olga"),
        ("old", US, "olga"),
    ]


async def test_one_person_is_not_two_whatever_the_request_and_a_sign_in_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    wants_two(demo, "bank")
    async with demo:
        await demo.train("m", 1)
        switching = asked(demo.ask("bank", "activate", model="m"))
        request = (await demo.waiting("bank"))["request"]
        refused = f"takes another person than who asked for it: that was {US}, and you are"
        with pytest.raises(DaemonError, match=f"{refused} {US}"):
            await demo.ask("bank", "approve", request=request, by="olga", person="olga")
        for person in (Person("olga", behind=US), Person(US, behind="olga")):
            with pytest.raises(DaemonError, match=f"{refused} {person}"):
                await approve(demo, "bank", person)
        with pytest.raises(DaemonError, match="without --alike"):
            await demo.ask("bank", "alike", request=request)
        assert not switching.done()
        await demo.ask("bank", "refuse", request=request, reason="not today")
        with pytest.raises(DaemonError, match="bank refused: not today; production stands for no"):
            await switching
        assert await serving(demo) == {}


async def test_nobody_waits_longer_than_was_said_nor_through_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    wants_two(demo, "bank")
    async with demo:
        await demo.train("m", 1)
        with pytest.raises(
            DaemonError, match=r"nobody else of bank said yes within 0\.2 s"
        ) as late:
            await demo.ask("bank", "activate", model="m", seconds=0.2)
        assert late.value.exit_code == Refused.exit_code
        switching = asked(demo.ask("bank", "activate", model="m"))
        request = (await demo.waiting("bank"))["request"]
        await demo.stop("bank")
        with pytest.raises(DaemonError):
            await switching
        await demo.start("bank")
        await demo.withdrawn("bank")
        with pytest.raises(DaemonError, match="no longer waits: withdrawn by a restart"):
            await demo.daemons["bank"].parts.context.owner_consent.approve(request, OLGA)


async def test_what_was_agreed_to_is_what_is_served_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    async with demo:
        for model in ("a", "b", "c"):
            await demo.train(model, 1)
            await demo.ask("bank", "activate", model=model)
        wants_two(demo, "bank")
        await demo.ask("bank", "reload")
        back = asked(demo.ask("bank", "rollback"))  # from c to b
        request = (await demo.waiting("bank"))["request"]
        again = asked(demo.ask("bank", "activate", model="a"))

        async def two() -> bool:
            found = await demo.ask("bank", "inbox")
            return sum(request["state"] == "waiting" for request in found) == 2

        await demo.until(two)
        consent = demo.daemons["bank"].parts.context.owner_consent
        second = (await demo.ask("bank", "inbox"))[-1]["request"]
        await consent.approve(second, OLGA)
        assert (await again)["model"] == "a"
        await consent.approve(request, OLGA)
        with pytest.raises(DaemonError, match="production has changed meanwhile"):
            await back
        assert await serving(demo) == {"production": "a"}


async def test_a_passive_party_that_wants_two_has_a_person_of_its_own_asked_before_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    wants_two(demo, "telco")
    async with demo:
        await demo.train("m", 1)
        switching = asked(demo.ask("bank", "activate", model="m"))
        request = await demo.waiting("telco")
        assert asked_in_words(request) == "bank asks to serve model m as production"

        async def told() -> bool:
            sessions = (await demo.ask("bank", "status"))["sessions"]
            return any(
                "waits for telco's consent" in wait for s in sessions for wait in s["waiting"]
            )

        await demo.until(told)
        await demo.ask("telco", "approve", request=request["request"])
        assert (await switching)["model"] == "m"
        # The same again changes nothing at telco, so nobody is asked.
        await demo.ask("bank", "activate", model="m")
        await demo.train("n", 1)
        with pytest.raises(DaemonError, match="no answer from telco; production is still m"):
            await demo.ask("bank", "activate", model="n", seconds=0.3)
        await demo.withdrawn("telco")
        late = asked(demo.ask("bank", "activate", model="n"))
        request = await demo.waiting("telco")
        await demo.ask("telco", "refuse", request=request["request"], reason="in May")
        with pytest.raises(DaemonError, match="telco refused: in May"):
            await late
        assert await serving(demo) == {"production": "m"}


def certificates(authority: Authority, folder: Path) -> str:
    """The ``[http]`` of a console that people sign in to by certificates."""
    server = authority.server(["127.0.0.1"])
    (folder / "server.pem").write_bytes(server.certificate)
    (folder / "server.key").write_bytes(server.key)
    (folder / "people.pem").write_bytes(authority.pem.certificate)
    return (
        '[http]\nport = 0\nconsole = true\ncertificate = "server.pem"\nkey = "server.key"\n'
        'client_ca = "people.pem"\n[http.console_certificates]\n'
        'anna = ["operator", "approver"]\nolga = ["approver"]\n'
    )


def browser(authority: Authority, name: str, folder: Path, address: str) -> httpx.AsyncClient:
    """What somebody uses whose certificate says ``name``."""
    own = authority.client(name)
    (folder / f"{name}.pem").write_bytes(own.certificate + own.key)
    tls = ssl.create_default_context(cafile=str(folder / "people.pem"))
    tls.load_cert_chain(folder / f"{name}.pem")
    home = httpx.URL(address).copy_with(path="/", query=None)
    return httpx.AsyncClient(base_url=home, verify=tls, follow_redirects=True)


async def press(client: httpx.AsyncClient, path: str, **fields: str) -> str:
    """The page after a button of the console was pressed."""
    page = await client.get("/console/now")
    csrf = page.text.partition('name="csrf" value="')[2].partition('"')[0]
    origin = str(client.base_url).rstrip("/")
    answer = await client.post(
        f"/console{path}", data={"csrf": csrf, **fields}, headers={"origin": origin}
    )
    return answer.text


async def test_people_with_certificates_are_two_in_the_console_and_a_made_sign_in_is_nobody_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.create("people of the bank")
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    wants_two(demo, "bank", more=certificates(authority, tmp_path / "bank"))
    async with demo:
        await demo.train("m", 1)
        signed_in = await demo.ask("bank", "console", who="anna", roles=["approver"])
        anna, olga, eve = (
            browser(authority, name, tmp_path / "bank", signed_in["address"])
            for name in ("anna", "olga", "eve")
        )
        async with anna, olga, eve:
            page = await press(anna, "/models/m/activate", mode="hop")
            request = (await demo.waiting("bank"))["request"]
            assert "Another person has to say yes in the Inbox until" in page and request in page
            assert "another person" in await press(anna, f"/inbox/{request}/approve")
            await eve.get(signed_in["address"])  # made at the socket, under anna's name
            assert "another person" in await press(eve, f"/inbox/{request}/approve")
            assert await serving(demo) == {}
            assert f"Request {request} is approved." in await press(
                olga, f"/inbox/{request}/approve"
            )

            async def served() -> bool:
                return await serving(demo) == {"production": "m"}

            await demo.until(served)
            # Whoever is at the socket may be whom its sign-ins name.
            switching = asked(demo.ask("bank", "activate", model="m"))
            request = (await demo.waiting("bank"))["request"]
            assert f"you are anna, signed in by {US}" in await press(
                eve, f"/inbox/{request}/approve"
            )
            await press(anna, f"/inbox/{request}/approve")
            assert (await switching)["model"] == "m"
