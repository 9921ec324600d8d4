from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

import fedmq
from fedmq.boosting.params import TrainParams
from fedmq.cli.main import cli
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import AlignmentJob, ScreenJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.schedule import Schedule
from fedmq.privacy.registry import ENGINES
from tests.loaded_module import loaded_module

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [
    ROOT / "README.md",
    CONTRIBUTING,
    *sorted(DOCS.rglob("*.md")),
    ROOT / "brokers" / "rabbitmq" / "README.md",
]
PATH = re.compile(
    r"(?<![\w./])(?:fedmq|tests|benchmarks|examples|brokers|deploy|docs)/[\w./@-]*\b/?"
)
CONFIGURED = [Federation, PartyFile, AlignmentJob, ScreenJob, TrainingJob, Schedule]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return loaded_module(DOCS / "reference" / "generate.py")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def test_the_generated_pages_are_current(generate: ModuleType) -> None:
    for name, page in generate.PAGES.items():
        assert (DOCS / "reference" / name).read_text() == page(), "run: make docs"


def test_every_page_of_the_reference_is_generated(generate: ModuleType) -> None:
    assert {path.name for path in (DOCS / "reference").glob("*.md")} == set(generate.PAGES)


def test_the_map_of_the_folders_is_current(generate: ModuleType) -> None:
    text = CONTRIBUTING.read_text()
    assert generate.with_map(text) == text, "run: make docs"


def test_every_parameter_has_a_meaning(generate: ModuleType) -> None:
    assert list(generate.PARAMETERS) == list(TrainParams.model_fields)


def test_every_key_of_a_configuration_file_has_a_meaning(generate: ModuleType) -> None:
    def check(model: Any) -> None:
        for name, field in model.model_fields.items():
            assert generate.meanings(model)[name], f"{model.__name__}.{name}"
            section = generate.section_of(field)
            if section not in (None, TrainParams):
                check(section)

    for model in CONFIGURED:
        check(model)


def test_every_option_has_a_meaning(generate: ModuleType) -> None:
    for name, command in generate.every_command(cli):
        assert command.help, name
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"{name} {option.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_a_page_lead_to_a_heading(page: Path) -> None:
    for target, fragment in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        text = (page.parent / target if target else page).read_text()
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert fragment in [anchor(heading) for heading in headings], f"{target}#{fragment}"


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_an_example_in_python_imports_exists(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert {name.name for name in node.names} <= set(dir(module)), node.module
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "fedmq":
                assert hasattr(fedmq, node.attr), node.attr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """NAME stands for what a reader is about to write: its folder must exist."""
    for name in PATH.findall(page.read_text()):
        assert (ROOT / re.sub(r"[^/]*NAME.*", "", name)).exists(), name


def test_what_to_add_names_what_the_files_hold() -> None:
    for added in CONTRIBUTING.read_text().split("\n## How to add ")[1:]:
        section = added.partition("\n## ")[0]
        names = ["pyproject.toml", *(name for name in PATH.findall(section) if "NAME" not in name)]
        named = [ROOT / name for name in names]
        sources = [file for path in named for file in (path, *path.glob("*.py")) if file.is_file()]
        text = "\n".join(source.read_text() for source in sources)
        steps = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
        for word in re.findall(r"`(_?[A-Za-z]\w+)`", "".join(steps)):
            assert re.search(rf"\b{word}\b", text), word


def test_every_page_is_found_from_the_first_one() -> None:
    listed = set(re.findall(r"\]\(([^)]+\.md)\)", (DOCS / "index.md").read_text()))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"index.md"}
    assert listed == pages


def test_the_tabs_of_the_site_are_the_sections_of_the_first_page() -> None:
    sections = {
        section.partition("\n")[0]: re.findall(r"^- .*?\]\(([^)]+\.md)\)", section, re.MULTILINE)
        for section in (DOCS / "index.md").read_text().split("\n## ")[1:]
    }
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    [_, *tabs] = yaml.safe_load(navigation)
    assert {title: pages for tab in tabs for title, pages in tab.items()} == sections, "mkdocs.yml"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = re.sub(r"^docker compose exec bank ", "", line).split()
            if not words or words[0] != "fedmq":
                continue
            command: click.Command | None = cli
            for word in words[1:]:
                if isinstance(command, click.Group):
                    command = command.get_command(click.Context(command), word)
            assert command is not None, line
            spelt = {name for option in command.params for name in option.opts}
            assert {word for word in words if word.startswith("--")} <= spelt, line


def test_the_leakage_page_says_what_the_engines_say() -> None:
    page = (DOCS / "privacy" / "what-each-side-learns.md").read_text()
    for engine in ENGINES.values():
        assert f"`{engine.name}`" in page
        assert engine.leakage.passive in page


ATTACKS = DOCS / "privacy" / "attacks.md"
ATTACK = re.compile(r"^### (.*)\n((?:(?!#).*\n?)*)", re.MULTILINE)


@pytest.mark.parametrize(
    "title,section", ATTACK.findall(ATTACKS.read_text()), ids=lambda text: text[:40]
)
def test_an_attack_says_what_it_does_gives_stops_leaves_and_which_test_shows_it(
    title: str, section: str
) -> None:
    said = re.findall(r"^- \*\*([\w ]+)\.\*\* ", section, re.MULTILINE)
    assert said == ["Does", "Gives", "Stops it", "Remains", "Test"], title


def test_every_attack_that_is_tested_has_a_section_and_no_section_names_another_test() -> None:
    named = set(re.findall(r"`([\w/]*test_\w+\.py)`", ATTACKS.read_text()))
    attacks = {path.name for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert {name for name in named if "/" not in name} == attacks
    assert all((ROOT / name).exists() for name in named if "/" in name)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name != "reference" and page != CONTRIBUTING],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_role_has_one_word(page: Path) -> None:
    """The active party and the passive party; pages that the code writes follow its own words."""
    assert not re.findall(r"(?:label|feature)[\s-]+holder", page.read_text(), re.IGNORECASE)


def test_the_makefile_has_the_targets_that_pages_name() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"(?:^|`)make ([\w-]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= targets


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "\nexec make test </dev/null\n" in script
    assert any("make test" in block.splitlines() for block in blocks(ROOT / "README.md", "sh"))


def test_the_walk_through_of_readme_and_tutorial_is_the_same() -> None:
    def typed(page: Path) -> list[str]:
        lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
        return [line for line in lines if "my-federation" in line]

    readme = typed(ROOT / "README.md")
    tutorial = typed(DOCS / "tutorial" / "first-federation.md")
    assert readme == [line for line in tutorial if line in readme]
    assert len(readme) == 9
