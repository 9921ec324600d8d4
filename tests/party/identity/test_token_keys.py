"""Private keys lie on a PKCS#11 token, SoftHSM's, and never in a file."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmq.errors import ConfigError
from fedmq.party.identity import private_keys
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.token_keys import Token
from fedmq.transport.sealing.keys import PrivateKeys
from fedmq.transport.sealing.noise import Initiator, respond

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN = "4711"

pytestmark = pytest.mark.skipif(
    not (MODULE.exists() and shutil.which("softhsm2-util")), reason="Debian's softhsm2 is missing"
)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """SoftHSM with a folder of its own; a library reads its settings once."""
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
        for label in ("bank", "telco"):
            command = ["softhsm2-util", "--init-token", "--free", "--label", label]
            subprocess.run(
                [*command, "--pin", PIN, "--so-pin", "0815"], check=True, capture_output=True
            )
        yield


@pytest.fixture
def bank(tokens: None) -> Token:
    return Token(MODULE, "bank", PIN)


def test_a_token_signs_as_a_file_does(bank: Token) -> None:
    keys = bank.generate("bank")
    signature = keys.sign.sign(b"said")
    assert keys.public.verifies(b"said", signature)
    assert not keys.public.verifies(b"altered", signature)


def test_a_token_and_a_file_shake_hands(bank: Token) -> None:
    on_token, in_file = bank.generate("bank"), PrivateKeys.generate()
    begun = Initiator(b"p", on_token.agree, in_file.public.agree)
    theirs, answer = respond(b"p", in_file.agree, on_token.public.agree, begun.offer())
    ours, _ = begun.finish(answer)
    assert (ours.send, ours.receive) == (theirs.receive, theirs.send)

    back = Initiator(b"p", in_file.agree, on_token.public.agree)
    theirs, answer = respond(b"p", on_token.agree, in_file.public.agree, back.offer())
    ours, _ = back.finish(answer)
    assert (ours.send, ours.receive) == (theirs.receive, theirs.send)


def test_the_file_holds_the_tokens_name_alone_and_the_keys_do_not_leave(
    bank: Token, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    ring = KeyRing.new("bank", bank)
    private_keys.write(path, ring)
    document = json.loads(path.read_text())
    assert document["secret"] == {"token": {"module": str(MODULE), "label": "bank"}}
    assert PIN not in path.read_text()
    read = private_keys.read(path, "bank", lambda: PIN)
    assert read.current.public == ring.current.public
    assert read.current.public.verifies(b"x", read.current.sign.sign(b"x"))
    with pytest.raises(TypeError, match="do not leave"):
        read.current.to_bytes()


def test_a_rotation_goes_on_on_the_token_and_forgets_what_is_over(
    bank: Token, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    first = KeyRing.new("turning", bank)
    private_keys.write(path, first)
    prepared = private_keys.read(path, "turning", lambda: PIN).prepared()
    private_keys.write(path, prepared)
    assert prepared.prepared().next == prepared.next
    private_keys.write(path, private_keys.read(path, "turning", lambda: PIN).advanced())
    turned = private_keys.read(path, "turning", lambda: PIN)
    assert prepared.next is not None and turned.previous is not None
    assert turned.current.public == prepared.next.public
    assert turned.previous.public == first.current.public
    private_keys.write(path, KeyRing.new("turning", bank))
    with pytest.raises(ConfigError, match="the token bank does not have the keys"):
        bank.find("turning", first.current.public)


@pytest.mark.parametrize(
    ("label", "pin", "module", "why"),
    [
        ("nobody", PIN, MODULE, "there is no token called nobody"),
        ("telco", "0000", MODULE, "the token telco does not open with this PIN"),
        ("bank", PIN, Path("/etc/hostname"), "/etc/hostname: the token bank cannot be opened"),
    ],
)
def test_what_is_amiss_is_named(tokens: None, label: str, pin: str, module: Path, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Token(module, label, pin).generate("bank")


def test_a_token_shows_no_pin(bank: Token) -> None:
    assert PIN not in repr(bank) and PIN not in repr(KeyRing.new("bank", bank))
