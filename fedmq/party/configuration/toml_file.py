"""A TOML file as a validated model, with errors that name the file and the key."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo

from fedmq.errors import ConfigError
from fedmq.messages.fields import NAME_OF_MODEL, NAME_OF_PARTY

__all__ = ["FilePath", "Section", "check_document", "in_folder", "parse_toml", "read_toml"]

Model = TypeVar("Model", bound="Section")

_NAMES = {
    NAME_OF_PARTY: "a small letter, and up to 31 small letters, digits, _ or -",
    NAME_OF_MODEL: "a letter or digit, and up to 63 letters, digits, dots, _ or -",
}


def in_folder(path: Path, info: ValidationInfo) -> Path:
    """``path``, relative to the folder of the file that is being read."""
    folder = (info.context or {}).get("folder", Path())
    return Path(folder) / path


FilePath = Annotated[Path, AfterValidator(in_folder)]
"""A path, relative to the folder of the file that names it."""


class Section(BaseModel):
    """A table of a configuration file: frozen, with no keys but the declared ones.

    The text below a key is its description in the reference.
    """

    # With use_attribute_docstrings pydantic would parse the source in every command.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    file: ClassVar[str] = ""
    """What users call the file, if the section is a whole file."""


def read_toml(
    path: Path, model: type[Model], change: Callable[[dict[str, Any]], None] = lambda _: None
) -> Model:
    """The file at ``path`` as ``model``; paths inside it are relative to its folder.

    ``change`` changes what the file holds before it is checked.

    Raises:
        ConfigError: the file is missing, is no TOML, or a key is wrong; a line names both.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8; save it as that") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_toml(text, path, model, change)


def parse_toml(
    text: str,
    path: Path,
    model: type[Model],
    change: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Model:
    """What the file at ``path`` would be as ``model`` if it held ``text``; errors as for it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    change(document)
    return check_document(document, str(path), path.parent, model)


def check_document(
    document: Mapping[str, Any], where: str, folder: Path, model: type[Model]
) -> Model:
    """``document`` as ``model``; paths inside it are relative to ``folder``.

    Raises:
        ConfigError: a key is wrong; a line names ``where`` and the key.
    """
    try:
        return model.model_validate(document, context={"folder": folder})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ValidationError as error:
        foreign = [key for key in document if key not in model.model_fields]
        if 2 * len(foreign) > len(document):
            raise ConfigError(
                f"{where}: this is no {model.file}, where there is no {foreign[0]!r}; is it the "
                "right file?"
            ) from None
        # A misspelt key is also a missing key: the line names the misspelling, which says more.
        first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
        raise ConfigError(f"{where}: {_line(first, model)}") from None


def _line(error: Any, model: type[Section]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"{key}: this key is missing"
    if error["type"] == "extra_forbidden":
        *place, wrong = error["loc"]
        if place and wrong in model.model_fields:
            return f"{key}: {wrong} belongs at the top of the file, above the first [table]"
        section = _section(model, place)
        table = next((name for name, inner in _tables(section) if wrong in _keys(inner)), None)
        if table is not None:
            return f"{key}: {wrong} belongs into the table [{'.'.join([*place, table])}]"
        keys = _keys(section)
        near = difflib.get_close_matches(str(wrong), keys, n=1)
        return f"{key}: there is no such key" + (f"; did you mean {near[0]!r}?" if near else "")
    name = _NAMES.get(error.get("ctx", {}).get("pattern"))
    if name is not None:
        return f"{key}: {error['input']!r} is no name; a name is {name}"
    if error["type"] == "tuple_type":
        written = json.dumps(error["input"], ensure_ascii=False, default=str)
        return f"{key}: this is a list, such as [{written}]"
    message = error["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


def _section(model: type[BaseModel], place: Sequence[Any]) -> type[BaseModel]:
    """The model of the table at ``place``."""
    for part in place:
        field = model.model_fields.get(part)
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    return model


def _tables(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The tables right below ``model``, by name."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield field.alias or name, field.annotation


def _keys(model: type[BaseModel]) -> list[str]:
    keys = [field.alias or name for name, field in model.model_fields.items()]
    return keys + [key for _, inner in _tables(model) for key in _keys(inner)]
