"""Commands on a page work, from top to bottom.

The first tutorial makes a federation and trains; what the how-tos show is typed into that. Words
that stand for what differs from reader to reader, such as the id of a session, are replaced.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.documentation.fences import DOCS, ROOT, Fence, fences, pages_with, to_run
from tests.documentation.shell import Shell
from tests.free_port import free_port

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(400)]

TUTORIAL = DOCS / "tutorial" / "first-federation.md"
BROKER_README = ROOT / "brokers" / "rabbitmq" / "README.md"
BEFORE_ANY_DAEMON = {DOCS / "how-to" / "keys.md", DOCS / "how-to" / "rabbitmq.md"}
"""Pages for files that ``fedmq init`` has just written."""

HOW_TOS = [page for page in pages_with("sh") if page.parent == DOCS / "how-to"]
TYPED = {TUTORIAL, BROKER_README, *HOW_TOS}

# What the how-tos set up in words, or in pieces of TOML.
BANK = """\
explain = "column"
column_names = "shared"
[http]
port = {port}
tokens = ["a-long-random-token"]
console = true
[online]
mode = "bitmap"
"""
OTHERS = """\
explain = "column"
sign_cards = true
[online]
modes = ["hop", "bitmap"]
"""
OU_HIDDEN = 'engine_options.ou = { sums = "hidden" }'


@dataclass
class Federation:
    """The tutorial's federation, on ports that are free here."""

    shell: Shell
    folder: Path
    broker: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)
    trained: str = ""
    """The session of the latest training."""

    def begin(self) -> None:
        """The tutorial until its people are scored; then a second model, quicker to train."""
        self.section(2)
        for party in ("bank", "telco", "retail"):
            more = BANK.format(port=self.http) if party == "bank" else OTHERS
            config = self.folder / party / "party.toml"
            text = config.read_text().replace(OU_HIDDEN, OU_HIDDEN.replace("hidden", "shown"))
            text = re.sub(r"\[online\]\nmodes? = .*\n", "", text)
            config.write_text(f'recordings = "recordings"\n{text}{more}')
        for section in (3, 4, 5, 6):
            self.section(section)
            if section == 3:
                self.shell.wait_until_says("is ready in", 60, times=3)
        job = self.folder / "bank" / "train.toml"
        text = job.read_text().replace("num_boost_round = 5", "num_boost_round = 2")
        for hiding, showing in (('"lattice"', '"ou"'), ('sums = "hidden"', 'sums = "shown"')):
            assert hiding in text
            text = text.replace(hiding, showing)
        job.write_text(text)
        self.shell.type(f"cd {self.folder.name}\nfedmq activate bank/party.toml")
        printed = self.shell.type("fedmq train bank/train.toml")
        self.trained = printed.partition("session ")[2].split()[0]

    def section(self, number: int) -> None:
        """Type what a section of the tutorial shows."""
        title = TUTORIAL.read_text().split("\n## ")[number].partition("\n")[0]
        begin = TUTORIAL.read_text().splitlines().index(f"## {title}")
        for fence in to_run("sh", TUTORIAL):
            if begin < fence.line and self._title(fence) == title:
                self.shell.type(self.on_free_ports(fence.text))

    def _title(self, fence: Fence) -> str:
        above = fence.page.read_text().splitlines()[: fence.line]
        return [line for line in above if line.startswith("## ")][-1].removeprefix("## ")

    def on_free_ports(self, text: str) -> str:
        text = re.sub(r"^(fedmq init .* --example)$", rf"\1 --broker 127.0.0.1:{self.broker}", text)
        return text.replace("--port 5671", f"--port {self.broker}").replace("8470", str(self.http))

    def models(self) -> list[Path]:
        """The bank's shares, the oldest first."""
        return sorted((self.folder / "bank" / "state" / "models").glob("model-*[0-9].json"))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("tutorial")
    shell = Shell(folder)
    federation = Federation(shell, folder / "my-federation")
    try:
        federation.begin()
        yield federation
        shell.type("cd ..")
        federation.section(7)
    finally:
        node = federation.folder / "broker" / "node"
        if node.exists():
            subprocess.run([node, "stop", node.parent], check=False, capture_output=True)
        shell.close()


def test_the_first_tutorial_trains_and_predicts(federation: Federation) -> None:
    scores = (federation.folder.parent / "scores.csv").read_text().splitlines()
    assert scores[0] == "id,score,reason"
    assert len(scores) > 50


def stands_for(page: Path, federation: Federation) -> Mapping[str, str]:
    """What a reader would write for the words of a page, longest words first."""
    model = federation.models()[-1].stem
    found = {"model-1": model, " credit": f" {model}"}
    if page.name == "audit.md":
        session = federation.trained
        found = {
            "recordings/4f1c….1.telco": f"telco/recordings/{session}.1.telco",
            "recordings/4f1c….1.bank": f"bank/recordings/{session}.1.bank",
            "bank.csv --label-column default": "bank/data.csv --label-column label",
            "telco=telco.csv": "telco=telco/data.csv",
        }
    elif page.name == "prove-answers.md":
        found = {"3f0c9a51be207d64": federation.trained}
    elif page == BROKER_README:
        found = {
            "cp -r brokers": f"cp -r {ROOT / 'brokers'}",
            "/tmp/broker": str(federation.folder.parent / "private"),
            "--port 5672": f"--port {free_port()}",
        }
    return found


def replaced(text: str, words: Mapping[str, str]) -> str:
    for word, ours in words.items():
        text = text.replace(word, ours)
    return text


@pytest.mark.parametrize(
    "page",
    [page for page in [BROKER_README, *HOW_TOS] if page not in BEFORE_ANY_DAEMON],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_commands_of_a_page_work(page: Path, federation: Federation) -> None:
    if page.name == "serve-scores.md" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    words = stands_for(page, federation)
    for fence in fences(page):
        if fence.language == "sh" and not fence.not_run:
            federation.shell.type(replaced(federation.on_free_ports(fence.text), words))
        elif fence.language == "python" and page.name == "serve-scores.md":
            code = shlex.quote(federation.on_free_ports(fence.text)).replace("\n", "'$'\\n''")
            federation.shell.type(f"python -c {code}")


@pytest.mark.parametrize("page", sorted(BEFORE_ANY_DAEMON), ids=lambda page: page.name)
def test_the_commands_of_a_page_for_new_files_work(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.type("export FEDMQ_KEYS_PASSPHRASE=opensesame")
    if page.name == "keys.md":
        shell.type("fedmq init here --active bank --passive telco --example && cd here")
    key = ""
    for fence in to_run("sh", page):
        printed = shell.type(fence.text.replace("lE4sbGeP…", key))
        key = next((word for word in printed.split() if len(word) >= 43), key)
    shell.close()


def test_every_page_with_commands_is_typed() -> None:
    assert set(pages_with("sh")) == TYPED
