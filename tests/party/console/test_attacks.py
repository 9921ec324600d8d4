"""Strangers, other sites and people with the wrong role get nothing and change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from fedmq.party.configuration.http import HttpSection
from fedmq.party.console.console import ROUTES
from fedmq.party.console.page_request import Changes, Shows
from tests.party.console.served_console import ANNA, ServedConsole, serve


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedConsole]:
    async with serve(tmp_path) as console:
        yield console


def filled(path: str) -> str:
    return f"/console{path}".replace("{", "").replace("}", "")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_nothing_is_shown_or_done_without_a_token(
    served: ServedConsole, route: Shows | Changes
) -> None:
    method = "GET" if isinstance(route, Shows) else "POST"
    answer = await served.client.request(method, filled(route.path))
    assert answer.status_code == 401
    assert "To sign in, ask the daemon" in answer.text
    assert served.asked == []


@pytest.mark.parametrize("token", ["", "x", "%00", "\N{PILE OF POO}", "a" * 5000])
async def test_a_guessed_token_signs_nobody_in(served: ServedConsole, token: str) -> None:
    answer = await served.client.get("/console/sign-in", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


async def test_a_token_is_taken_once(served: ServedConsole) -> None:
    address = await served.address()
    assert (await served.client.get(address)).status_code == 303
    served.client.cookies.clear()
    assert (await served.client.get(address)).status_code == 401


async def test_the_cookie_is_for_this_site_alone_and_no_script_reads_it(
    served: ServedConsole,
) -> None:
    answer = await served.client.get(await served.address())
    [cookie] = answer.headers.get_list("set-cookie")
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/console", "Max-Age=43200"):
        assert attribute in cookie


async def test_behind_tls_the_cookie_travels_encrypted_alone(tmp_path: Path) -> None:
    async with serve(tmp_path, console_behind_proxy="https://fedmq.bank.example") as served:
        address = await served.address()
        assert address.startswith("https://fedmq.bank.example/console/sign-in?token=")
        answer = await served.client.get(
            address.removeprefix("https://fedmq.bank.example"),
            headers={"Host": "fedmq.bank.example"},
        )
        assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("change", ["name", "signature", "nothing", "unsigned"])
async def test_a_forged_cookie_is_none(served: ServedConsole, change: str) -> None:
    await served.sign_in("operator")
    [(name, value)] = served.client.cookies.items()
    identity, _, signature = value.partition(".")
    forged = {
        "name": f"{identity[:-1]}x.{signature}",
        "signature": f"{identity}.{'0' * len(signature)}",
        "nothing": "",
        "unsigned": identity,
    }[change]
    served.client.cookies.clear()
    answer = await served.client.get("/console/now", headers={"Cookie": f"{name}={forged}"})
    assert answer.status_code == 401


async def test_who_signed_out_is_out_though_the_cookie_is_kept(served: ServedConsole) -> None:
    csrf = await served.sign_in()
    [(name, value)] = served.client.cookies.items()
    await served.send("/sign-out", csrf)
    served.client.cookies.clear()
    answer = await served.client.get("/console/now", headers={"Cookie": f"{name}={value}"})
    assert answer.status_code == 401


@pytest.mark.parametrize("roles", [(), ("viewer",), ("approver",)])
async def test_who_may_only_look_changes_nothing(
    served: ServedConsole, roles: tuple[str, ...]
) -> None:
    csrf = await served.sign_in(*roles)
    answer = await served.send("/now/12ab/cancel", csrf)
    assert answer.status_code == 403
    assert "it takes the role operator" in answer.text
    assert "cancel" not in [request["do"] for request in served.asked]
    assert served.audited() == ["sign in", "refused"]


async def test_an_operator_changes_and_the_audit_log_says_so(served: ServedConsole) -> None:
    csrf = await served.sign_in("operator")
    answer = await served.send("/now/12ab/cancel", csrf)
    assert answer.headers["location"] == "/console/now"
    assert served.asked[-1] == {"do": "cancel", "session": "12ab", "person": ANNA}
    assert served.audited() == ["sign in", "cancel"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {},
    ],
    ids=str,
)
async def test_another_site_changes_nothing_even_with_the_forms_token(
    served: ServedConsole, headers: dict[str, str]
) -> None:
    csrf = await served.sign_in("operator")
    answer = await served.client.post(
        "/console/now/12ab/cancel", data={"csrf": csrf}, headers=headers
    )
    assert answer.status_code == 403
    assert "did not come from a page of the console" in answer.text
    assert served.audited() == ["sign in"]


@pytest.mark.parametrize("csrf", ["", "x", "\N{PILE OF POO}"])
async def test_a_form_without_its_token_changes_nothing(served: ServedConsole, csrf: str) -> None:
    await served.sign_in("operator")
    assert (await served.send("/now/12ab/cancel", csrf)).status_code == 403
    assert served.audited() == ["sign in"]


async def test_the_token_of_another_sign_in_is_not_taken(served: ServedConsole) -> None:
    first = await served.sign_in("operator")
    await served.sign_in("operator")
    assert (await served.send("/now/12ab/cancel", first)).status_code == 403


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{}", "application/json"),
        (b"\xff=\xfe", "application/x-www-form-urlencoded"),
        (b"a=b&" * 1000, "application/x-www-form-urlencoded"),
        (b"a=" + b"b" * 400_000, "application/x-www-form-urlencoded"),
    ],
    ids=["json", "bytes", "fields", "length"],
)
async def test_what_is_no_form_is_refused_in_a_line(
    served: ServedConsole, content: bytes, kind: str
) -> None:
    await served.sign_in("operator")
    answer = await served.client.post(
        "/console/now/12ab/cancel",
        content=content,
        headers={"Content-Type": kind, "Origin": str(served.client.base_url)},
    )
    assert answer.status_code == 400
    assert "the form cannot be read" in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "../console.py",
        "..%2fconsole.py",
        "%2e%2e/%2e%2e/console.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "vendor/../../templates/base.html",
        "console.css%00.html",
        "",
        "vendor",
    ],
)
async def test_path_tricks_find_no_file(served: ServedConsole, path: str) -> None:
    address = f"{served.client.base_url}/console/static/{path}"
    answer = await served.client.get(httpx.URL(address))
    assert answer.status_code in (401, 404)
    assert "import" not in answer.text
    assert "root:" not in answer.text


async def test_every_answer_tells_the_browser_to_run_and_load_nothing_from_elsewhere(
    served: ServedConsole,
) -> None:
    await served.sign_in()
    for path in ("/now", "/static/console.css", "/sign-in", ""):
        headers = (await served.client.get(f"/console{path}")).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert (await served.client.get("/console/now")).headers["cache-control"] == "no-store"


@pytest.mark.long
async def test_ten_thousand_requests_leave_nothing_behind(served: ServedConsole) -> None:
    for number in range(10_000):
        if number % 100 == 0:
            await served.client.get("/console/sign-in", params={"token": str(number)})
        await served.address()
    assert len(served.console._tokens._grants) <= 100
    for _ in range(300):
        await served.client.get(await served.address())
    assert len(served.console._guard._sign_ins._open) <= 200
    assert len(served.audited()) == 300


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"host": "0.0.0.0", "tokens": ["a-token-of-sixteen-characters"], "console": True},
            "would travel unencrypted",
        ),
        ({"console_behind_proxy": "http://bank.example"}, "no https address"),
        ({"console_behind_proxy": "https://bank.example/fedmq"}, "no https address"),
        ({"console_certificates": {"anna": ["operator"]}}, "needs client_ca"),
    ],
)
def test_a_console_that_others_could_read_along_is_refused(
    values: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        HttpSection.model_validate(values)
