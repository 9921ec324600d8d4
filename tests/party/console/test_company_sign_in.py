"""People sign in with accounts of the company, at a real identity provider."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc.jwk import RSAKey
from starlette.requests import Request

from fedmq.errors import Refused
from fedmq.party.configuration.http import OpenIdSection
from fedmq.party.console.company_sign_in import CompanySignIn
from fedmq.party.http.identity_provider import IdentityProvider, Pending
from tests.party.console.served_console import ServedConsole, serve
from tests.party.http.identity_server import CLIENT, SECRET, IdentityServer, identity_server

ROLES = {"fedmq-operators": ["operator", "approver"], "fedmq-viewers": []}


@pytest.fixture(scope="module")
def company() -> Iterator[IdentityServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")  # the provider's: it is on this machine
        with identity_server() as server:
            yield server


@asynccontextmanager
async def console(
    company: IdentityServer, state: Path, **section: Any
) -> AsyncIterator[ServedConsole]:
    openid = {"issuer": company.issuer, "client_id": CLIENT, "client_secret": SECRET} | section
    openid["name_claim"] = "name"
    async with serve(state, openid={"roles": ROLES, **openid}) as served:
        company.registers(f"{served.client.base_url}/console/openid/back")
        yield served


async def leaves(served: ServedConsole) -> str:
    """Where the console sends a browser that wants to sign in."""
    page = await served.client.get("/console/now")
    assert "Sign in with your account" in page.text
    left = await served.client.get("/console/openid")
    assert left.status_code == 303
    return str(left.headers["location"])


async def comes_back(served: ServedConsole, place: httpx.URL) -> httpx.Response:
    return await served.client.get(place)


async def test_a_group_gives_roles_and_the_log_has_the_person_with_the_providers_own_name(
    company: IdentityServer, tmp_path: Path
) -> None:
    async with console(company, tmp_path) as served:
        place = company.signs_in("anna", await leaves(served))
        back = await comes_back(served, place)
        assert (back.status_code, "url=/console/now" in back.text) == (200, True)
        page = await served.client.get("/console/now")
        assert page.status_code == 200 and "Anna" in page.text
        csrf = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        assert (await served.send("/now/12ab/cancel", csrf)).status_code == 303
        assert served.audited() == ["sign in", "cancel"]
        [entry, _] = served.audit_log.entries()
        assert (entry["who"], f"at {company.issuer}" in str(entry)) == ("Anna", True)


async def test_a_group_without_roles_may_look_and_no_group_may_not(
    company: IdentityServer, tmp_path: Path
) -> None:
    async with console(company, tmp_path) as served:
        await comes_back(served, company.signs_in("carl", await leaves(served)))
        page = await served.client.get("/console/now")
        csrf = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        assert (await served.send("/now/12ab/cancel", csrf)).status_code == 403
    async with console(company, tmp_path / "other") as served:
        refused = await comes_back(served, company.signs_in("bert", await leaves(served)))
        assert refused.status_code == 403
        assert "Bert is in no group of http.openid.roles" in refused.text
        assert (await served.client.get("/console/now")).status_code == 401
        assert served.audited() == []


async def test_a_sign_in_serves_one_browser_once(company: IdentityServer, tmp_path: Path) -> None:
    async with console(company, tmp_path) as served:
        place = company.signs_in("anna", await leaves(served))
        async with httpx.AsyncClient() as other:
            stolen = await other.get(place)
            assert stolen.status_code == 403
            assert "began elsewhere or too long ago" in stolen.text
        await comes_back(served, place)
        again = await comes_back(served, place)
        assert again.status_code == 403
        assert "refused the sign-in: invalid_grant" in again.text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"state": "made.9999999999.up"}, "began elsewhere"),
        ({"state": ""}, "began elsewhere"),
        ({"iss": "https://other.example"}, "another identity provider"),
        ({"error": "access_denied"}, "refused the sign-in: access_denied"),
    ],
)
async def test_what_comes_back_changed_signs_nobody_in(
    company: IdentityServer, tmp_path: Path, changed: Mapping[str, str], why: str
) -> None:
    async with console(company, tmp_path) as served:
        place = company.signs_in("anna", await leaves(served))
        back = await comes_back(served, place.copy_merge_params(dict(changed)))
        assert back.status_code == 403
        assert why in back.text
        assert (await served.client.get("/console/now")).status_code == 401


async def test_a_sign_in_of_yesterday_is_over(company: IdentityServer, tmp_path: Path) -> None:
    now = 0.0
    section = OpenIdSection.model_validate(
        {"issuer": company.issuer, "client_id": CLIENT, "roles": ROLES}
    )
    provider = IdentityProvider(section)
    signs_in = CompanySignIn(section, provider, lambda: "http://x", lambda: now)
    left = await signs_in.leave("c", is_secure=True)
    state = httpx.URL(left.headers["location"]).params["state"]
    now = 601.0
    request = Request(
        {
            "type": "http",
            "query_string": f"state={state}&code=x".encode(),
            "headers": [(b"cookie", f"c={state}".encode())],
        }
    )
    with pytest.raises(Refused, match="too long ago"):
        await signs_in.come_back("c", request)


async def test_a_provider_that_is_away_is_named(tmp_path: Path) -> None:
    openid = {"issuer": "http://localhost:9", "client_id": CLIENT, "roles": ROLES}
    async with serve(tmp_path, openid=openid) as served:
        answer = await served.client.get("/console/openid")
        assert answer.status_code == 503
        assert "the identity provider http://localhost:9 cannot be asked" in answer.text


async def test_an_answer_to_another_sign_in_is_refused(
    company: IdentityServer, tmp_path: Path
) -> None:
    """Somebody puts the code of another sign-in into the own address: the nonce tells."""
    async with console(company, tmp_path) as served:
        mine = httpx.URL(await leaves(served))
        foreign = mine.copy_merge_params({"nonce": "another"})
        back = await comes_back(served, company.signs_in("anna", str(foreign)))
        assert back.status_code == 403
        assert "not for this sign-in" in back.text


@pytest.mark.parametrize(
    ("claims", "opens"),
    [
        ({}, True),
        ({"aud": ["other", "scores-api"]}, True),
        ({"aud": CLIENT}, False),
        ({"iss": "https://other.example"}, False),
        ({"exp": int(time.time()) - 3600}, False),
    ],
)
async def test_a_token_of_the_provider_opens_the_api_if_it_is_for_it(
    company: IdentityServer, claims: Mapping[str, Any], opens: bool
) -> None:
    section = OpenIdSection.model_validate(
        {"issuer": company.issuer, "client_id": CLIENT, "audience": "scores-api"}
    )
    token = company.token(**{"aud": "scores-api", **claims})
    assert await IdentityProvider(section).admits(token) is opens


async def test_a_token_that_others_signed_opens_nothing(company: IdentityServer) -> None:
    section = OpenIdSection.model_validate(
        {"issuer": company.issuer, "client_id": CLIENT, "audience": "scores-api"}
    )
    provider = IdentityProvider(section)
    forged = company.token(RSAKey.generate_key(2048), aud="scores-api")
    head, body, _ = company.token(aud="scores-api").split(".")
    for token in (forged, f"{head}.{body}.", "a.b.c", "", "no token"):
        assert not await provider.admits(token)
    assert await provider.admits(company.token(aud="scores-api"))


async def test_nothing_of_a_token_is_taken_without_its_signature(company: IdentityServer) -> None:
    pending = Pending("state", "nonce", "v" * 43)
    section = OpenIdSection.model_validate({"issuer": company.issuer, "client_id": CLIENT})
    with pytest.raises(Refused, match="refused the sign-in"):
        await IdentityProvider(section).claims("code", pending, "http://x/back")
