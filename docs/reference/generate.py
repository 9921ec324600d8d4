"""Writes the pages of docs/reference that are drawn from the code, and the map in CONTRIBUTING.md.

::

    python docs/reference/generate.py          (or: make docs)

A test fails when a page differs from what this script would write.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import fedmq
from fedmq import errors
from fedmq.boosting.objectives.registry import OBJECTIVES
from fedmq.boosting.params import ALIASES, TrainParams
from fedmq.cli.main import cli
from fedmq.messages import (
    alignment,
    body,
    inference,
    model_request,
    online,
    overlap,
    screen,
    training,
)
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.body import Body
from fedmq.messages.codec import KINDS
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import AlignmentJob, ScreenJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.schedule import Schedule
from fedmq.privacy.registry import ENGINES
from fedmq.protocol import diagram

REFERENCE = Path(__file__).parent
ROOT = REFERENCE.parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"

PARAMETERS: Mapping[str, str] = {
    "objective": "what is learned",
    "num_boost_round": "number of rounds, and so of trees where a round grows one",
    "num_parallel_tree": "trees that a round grows from the same gradients, for each class",
    "booster": "`dart` leaves trees out of some rounds, and weighs them anew",
    "rate_drop": "of `dart`: the share of trees that a round leaves out",
    "one_drop": "of `dart`: a round leaves out one tree at least",
    "skip_drop": "of `dart`: the chance that a round leaves out none",
    "sample_type": "of `dart`: trees are left out alike, or by their weight (`weighted`)",
    "normalize_type": "of `dart`: new trees weigh as much as each left out, or as all (`forest`)",
    "max_depth": "levels of splits in a tree; 0 with `max_leaves` is no limit",
    "grow_policy": "a level at a time, or the node that gains most (`lossguide`)",
    "max_leaves": "leaves of a tree at most; 0 is no limit",
    "eta": "how much of a leaf's weight counts",
    "reg_lambda": "L2 regularisation of leaf weights",
    "reg_alpha": "L1 regularisation of leaf weights",
    "gamma": "gain that a split must exceed",
    "min_child_weight": "least sum of hessians on either side of a split",
    "max_delta_step": "most that a leaf adds before eta; 0 is no limit",
    "subsample": "share of the rows that each tree learns from",
    "colsample_bytree": "share of each party's columns that a tree may use",
    "colsample_bylevel": "share of a tree's columns that each of its levels may use",
    "colsample_bynode": "share of a level's columns that each of its nodes may use",
    "goss": "grow from the rows with large gradients, and some of the others (LightGBM)",
    "top_rate": "share of the rows with the largest gradients that `goss` keeps",
    "other_rate": "share of the rows that `goss` draws from the rest",
    "gradient_bits": "g and h rounded at random to so many bits, 2 to 16; leaves stay exact",
    "monotone_constraints": "1 for columns that may only raise the prediction, -1 only lower it; "
    "another party's as `party.column`",
    "interaction_constraints": "lists of columns that may stand together on a path of a tree, each "
    "own by name or number, another party's as `party.column`; `party.*` is all",
    "max_bin": "most bins of a feature",
    "max_cat_to_onehot": "from so many categories on, the active party's columns are split by sets "
    "of them; one category from the others when left out",
    "max_cat_threshold": "so many categories, less one, go to one side of a set at most",
    "base_score": "prediction before the first tree; estimated from the labels when left out",
    "num_class": "number of classes of `multi:softprob` and `multi:softmax`",
    "num_target": "how many labels a row has; whoever holds them need not say",
    "multi_strategy": "a tree for each class, target or quantile, or one tree whose leaves have a "
    "number for each (`multi_output_tree`)",
    "scale_pos_weight": "how often rows of label 1 count",
    "huber_slope": "where `reg:pseudohubererror` turns from squared to absolute",
    "quantile_alpha": "which quantile `reg:quantileerror` learns, or a list of several",
    "expectile_alpha": "which expectile `reg:expectileerror` learns, or a list of several",
    "tweedie_variance_power": "of `reg:tweedie`: near 1 Poisson, near 2 gamma",
    "aft_loss_distribution": "of the logarithms of times in `survival:aft`",
    "aft_loss_distribution_scale": "how wide that distribution is",
    "lambdarank_num_pair_per_sample": "pairs of `rank:ndcg` and the like have one of so many rows "
    "that are predicted first in a query",
    "lambdarank_normalization": "whether the gradients of a query are scaled by their sum",
    "lambdarank_score_normalization": "whether a pair counts more, the nearer its predictions are",
    "ndcg_exp_gain": "whether relevance r counts 2^r - 1, or r",
    "seed": "of the rows and columns sampled, and of the evaluation rows",
    "eval_metric": "one name or a list; the objective's own when left out",
    "early_stopping_rounds": "stop after so many trees without a better value of the last metric",
    "active_only_trees": "so many first rounds use the active party alone (RL-SecureBoost)",
    "xgboost_arithmetic": "whose model comes out, node by node: that of XGBoost 3.2 and 3.3, or of "
    "3.4 and later; left out, that of the XGBoost installed beside the active party's fedmq, or "
    "the newest where none is",
}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def first_paragraph(documented: Any) -> str:
    """The first paragraph of a docstring, in one line and without reST."""
    text = inspect.getdoc(documented) or ""
    return plain(text.split("\n\n")[0])


def plain(text: str) -> str:
    """One line; code in Markdown's single backquotes."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return " ".join(text.replace("``", "`").split())


# Configuration


def configuration() -> str:
    """docs/reference/configuration.md."""
    parts = [
        "# Configuration\n",
        "Drawn from the code by `make docs`. A key that is not listed is an error, as is a missing",
        "one that is required. Paths are relative to the folder of the file they stand in.",
    ]
    for name, model in (
        ("federation.toml", Federation),
        ("party.toml", PartyFile),
        ("align.toml", AlignmentJob),
        ("screen.toml", ScreenJob),
        ("train.toml", TrainingJob),
        ("schedule.toml", Schedule),
    ):
        doc = inspect.getmodule(model)
        parts += [f"\n## {name}\n", first_paragraph(doc), "", *sections(model)]
    parts += [
        "\n### [params]\n",
        "XGBoost's parameters under XGBoost's names, with its aliases.",
        "",
        table(["key", "values", "default", "meaning"], parameters()),
        "\n### [engine_options]\n",
        table(["engine", "options", "exact"], engines()),
    ]
    return "\n".join(parts) + "\n"


def sections(model: type[BaseModel], title: str = "") -> Iterator[str]:
    """A table of the keys of ``model``, and one for each of its sections."""
    inner: list[tuple[str, type[BaseModel]]] = []
    rows = []
    for name, field in model.model_fields.items():
        section = section_of(field)
        if section is not None:
            if section is not TrainParams:
                inner.append((name, section))
            continue
        rows.append([f"`{name}`", words(field), default(field), plain(meanings(model)[name])])
    if title:
        yield f"\n### [{title}]\n"
        yield f"{first_paragraph(model)}\n"
    yield table(["key", "values", "default", "meaning"], rows)
    for name, section in inner:
        yield from sections(section, f"{title}.{name}" if title else name)


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What each key of ``model`` means: its description, or the text below it in the source."""
    found = {name: field.description or "" for name, field in model.model_fields.items()}
    above = model.__base__
    if above is not None and model.__module__ == above.__module__ and issubclass(above, BaseModel):
        found |= meanings(above)
    [drawn] = ast.parse(inspect.getsource(model)).body
    assert isinstance(drawn, ast.ClassDef)
    for key, below in pairwise(drawn.body):
        match key, below:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if name in found:
                found[name] = inspect.cleandoc(text)
    return found


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a table of its own."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def words(field: FieldInfo) -> str:
    """What a field may hold."""
    return ", ".join([kind_in_words(field.annotation), *bounds(field.metadata)])


def bounds(metadata: Sequence[Any]) -> Iterator[str]:
    """What limits a value."""
    signs = {"gt": "> {}", "ge": "≥ {}", "lt": "< {}", "le": "≤ {}"}
    lengths = {"min_length": "{} characters or more", "max_length": "{} characters at most"}
    for constraint in metadata:
        inside = constraint.metadata if isinstance(constraint, FieldInfo) else [constraint]
        for bound in inside:
            for name, text in (signs | lengths).items():
                limit = getattr(bound, name, None)
                if limit is not None:
                    yield "not empty" if (name, limit) == ("min_length", 1) else text.format(limit)


def kind_in_words(kind: Any) -> str:
    """A type in words."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return ", ".join([kind_in_words(inside[0]), *bounds(inside[1:])])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin in (Union, UnionType):
        return " or ".join(kind_in_words(kind) for kind in inside if kind is not type(None))
    if origin is tuple:
        return f"list of {kind_in_words(inside[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "table"
    names = {
        str: "text", int: "whole number", float: "number", bool: "`true` or `false`", Path: "path",
        SecretStr: "text", Array: "array", Bitmap: "bitmap", bytes: "bytes", Any: "anything",
    }  # fmt: skip
    return names.get(kind, getattr(kind, "__name__", str(kind)))


def default(field: FieldInfo) -> str:
    """A field's default as TOML has it."""
    if field.is_required():
        return "required"
    value = field.default
    if value is PydanticUndefined or value is None:
        return ""
    return f"`{json.dumps(value, default=str)}`"


def parameters() -> Iterator[Sequence[str]]:
    """Rows of the table of training parameters."""
    for name, field in TrainParams.model_fields.items():
        aliases = [f"`{alias}`" for alias, of in ALIASES.items() if of == name]
        names = ", ".join([f"`{name}`", *aliases])
        given = default(field) if name != "eval_metric" else ""
        kind = words(field) if name != "objective" else ", ".join(f"`{one}`" for one in OBJECTIVES)
        yield [names, kind, given, PARAMETERS[name]]


def engines() -> Iterator[Sequence[str]]:
    """Rows of the table of engines."""
    for name, engine in ENGINES.items():
        made = engine()
        options = [f"`{key} = {json.dumps(getattr(made, key))}`" for key in engine.options()]
        yield [f"`{name}`", ", ".join(options) or "none", "yes" if engine.traits.exact else "no"]


# Commands and exit codes


def commands() -> str:
    """docs/reference/cli.md."""
    parts = ["# Commands\n", "Drawn from the code by `make docs`.", f"\n{cli.help}"]
    for name, command in every_command(cli):
        shown = [option for option in command.params if isinstance(option, click.Option)]
        places = [argument.make_metavar(click.Context(command)) for argument in command.params
                  if isinstance(argument, click.Argument)]  # fmt: skip
        parts.append(f"\n## fedmq {name}\n")
        parts.append(f"    fedmq {' '.join([name, '[OPTIONS]', *places])}\n")
        parts.append(plain(f"{inspect.cleandoc(command.help or '')} {command.epilog or ''}"))
        rows = [
            [option_names(option), option.help or "", option_default(option)] for option in shown
        ]
        parts += ["", table(["option", "meaning", "default"], rows)]
    return "\n".join(parts) + "\n"


def every_command(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands of a group by their full names, those of its own groups too."""
    for name in group.commands:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def option_names(option: click.Option) -> str:
    """The spellings of an option, and what it takes."""
    takes = option.metavar or option.type.name.split()[0].upper()
    takes = "" if option.is_flag else f" {takes}"
    return ", ".join(f"`{name}{takes}`" for name in option.opts)


def option_default(option: click.Option) -> str:
    """What an option is when it is left out."""
    if option.required:
        return "required"
    return (
        f"`{option.default}`"
        if isinstance(option.default, str | int | float) and option.default
        else ""
    )


def exit_codes() -> str:
    """docs/reference/exit-codes.md."""
    shown = [getattr(errors, name) for name in errors.__all__]
    named = [error for error in shown if isinstance(error, type)]
    rows = [
        ["0", "done", ""],
        ["1", "an error inside fedmq", "`FedmqError`"],
        ["2", "wrong usage of a command", ""],
    ]
    for error in sorted(errors.FedmqError.__subclasses__(), key=lambda error: error.exit_code):
        below = [kind for kind in named if error in kind.__mro__ and kind is not error]
        names = ", ".join(f"`{kind.__name__}`" for kind in (error, *below))
        rows.append([str(error.exit_code), first_paragraph(error), names])
    rows.append(["130", "interrupted by Ctrl-C", ""])
    return (
        "# Exit codes\n\nDrawn from the code by `make docs`. Every error is one line on standard "
        "error that begins with `fedmq:`; only wrong usage shows the command's usage besides.\n\n"
        + table(["code", "what", "raised in Python as"], rows)
        + "\n"
    )


# The interface in Python, and the examples


def interface() -> str:
    """docs/reference/python.md; the site puts the docstrings in where a line begins with colons."""
    parts = [
        "# Python\n",
        "All that `import fedmq` offers. What stands in other modules may change without notice.",
    ]
    for title, names in fedmq.PUBLIC.items():
        rows = [[f"`fedmq.{name}`", first_paragraph(getattr(fedmq, name))] for name in names]
        parts += [f"\n## {title}\n", table(["name", "what it is"], rows)]
        parts += [f"\n::: fedmq.{name}" for name in names]
    return "\n".join(parts) + "\n"


def examples() -> str:
    """docs/reference/examples.md."""
    parts = [
        "# Examples\n",
        "The scripts of the folder `examples`, whole. Each runs as it is, with made-up people or a",
        "table that comes with scikit-learn.",
    ]
    for path in sorted(ROOT.glob("examples/*.py")):
        text = path.read_text(encoding="utf-8").strip()
        parts += [f"\n## {path.name}\n", f"```python\n{text}\n```"]
    return "\n".join(parts) + "\n"


# Messages


def messages() -> str:
    """docs/reference/messages.md."""
    parts = [
        "# Messages\n",
        'Drawn from the code by `make docs`. A message is msgpack: `["fedmq", header, body]`, both',
        'packed apart; a sealed one is `["fedmq", header, sealed body, seal]`. Arrays and bitmaps',
        "travel as raw bytes with dtype and shape; payloads are named arrays and numbers of the",
        "privacy engine. No message exceeds 1 MiB. An unknown version, kind or field is refused.",
    ]
    rooms: tuple[tuple[str, ModuleType], ...] = (
        ("Any session", body),
        ("Alignment", alignment),
        ("Count of shared people", overlap),
        ("Screen", screen),
        ("Training", training),
        ("Inference", inference),
        ("Online scores", online),
        ("Requests about a model", model_request),
    )
    for title, module in rooms:
        kinds = {kind: model for kind, model in KINDS.items() if model in module.BODIES}
        rows = [
            [f"**{name}**", first_paragraph(model), fields_of(model)]
            for name, model in kinds.items()
        ]
        parts += [f"\n## {title}\n", table(["kind", "what it says", "fields"], rows)]
    return "\n".join(parts) + "\n"


def fields_of(model: type[Body]) -> str:
    """The fields of a body."""
    return ", ".join(f"`{name}`" for name in model.model_fields)


# The map of the folders


def folders() -> Iterator[Path]:
    """The folders of the package, each before those inside it."""
    return (path.parent for path in sorted(ROOT.glob("fedmq/**/__init__.py"), key=_by_folder))


def _by_folder(path: Path) -> tuple[str, ...]:
    return path.parent.parts


def question(folder: Path) -> str:
    """What a folder answers: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    found = re.match(r".*?[?.:](?=\s|$)", text, re.DOTALL)
    return plain(found.group() if found else text)


def house() -> str:
    """A table of all folders of the package and their questions."""
    rows = [[f"`{path.relative_to(ROOT).as_posix()}/`", question(path)] for path in folders()]
    return table(["folder", "the question it answers"], rows[1:])


def with_map(text: str) -> str:
    """The text of CONTRIBUTING.md with the map of today."""
    begin, end = "<!-- The map: written by make docs. -->\n", "<!-- The end of the map. -->\n"
    before, after = text.split(begin)[0], text.split(end)[1]
    return f"{before}{begin}{house()}\n{end}{after}"


PAGES = {
    "configuration.md": configuration,
    "cli.md": commands,
    "python.md": interface,
    "examples.md": examples,
    "exit-codes.md": exit_codes,
    "messages.md": messages,
    "state-machines.md": diagram.page,
}


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
        print(f"docs/reference/{name}")
    contributing = with_map(CONTRIBUTING.read_text(encoding="utf-8"))
    CONTRIBUTING.write_text(contributing, encoding="utf-8")
    print(CONTRIBUTING.name)


if __name__ == "__main__":
    main()
