"""``[functions]`` of the label holder's file: objectives and metrics of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from fedmq.boosting.objectives.custom import NamedFunction, check_reference
from fedmq.errors import ConfigError
from fedmq.party.configuration.toml_file import Section

__all__ = ["FunctionsSection"]

_References = Mapping[str, Annotated[str, AfterValidator(check_reference)]]


class FunctionsSection(Section):
    """Functions of Python that a job may name; they are imported where this party computes."""

    obj: _References = Field(default_factory=dict)
    """Objectives, as `xgboost.train` takes them, such as `{ focal = "losses:focal" }`."""
    custom_metric: _References = Field(default_factory=dict)
    """Metrics, as `xgboost.train` takes them, such as `{ profit = "losses:profit" }`."""

    def named(self, kind: str, name: str | None) -> NamedFunction | None:
        """The function of this ``name``; ``kind`` is ``obj`` or ``custom_metric``.

        Raises:
            ConfigError: there is none of that name.
        """
        if name is None:
            return None
        references: Mapping[str, str] = getattr(self, kind)
        if name not in references:
            known = ", ".join(references) or "none"
            raise ConfigError(
                f"{kind} = {name!r}: functions.{kind} of this party's file has no such name, "
                f"but {known}"
            )
        return NamedFunction(f"functions.{kind}.{name}", references[name])
