"""For how long may a party keep what names people?"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from fedmq.party.configuration.toml_file import Section

__all__ = ["RetentionSection"]

_PERIOD = re.compile(r"([1-9][0-9]{0,4})([dwy])")
_DAYS = {"d": 1, "w": 7, "y": 365}


def _period(text: str) -> str:
    if _PERIOD.fullmatch(text) is None:
        raise ValueError(
            f'{text!r} is no period; write days, weeks or years, such as "90d", "12w" or "1y"'
        )
    return text


Period = Annotated[str, AfterValidator(_period)]


class RetentionSection(Section):
    """How long files are kept that name people, from when each was last written, such as ``"90d"``,
    ``"12w"`` or ``"1y"`` (365 days). The daemon deletes older ones at its start and every hour, and
    notes that in the audit log. What is left out is kept as before. What a training under way holds
    stays until it has ended."""

    recordings: Period | None = None
    """Of the sessions, for ``fedmq audit``."""
    held_out: Period | None = None
    """The rows that trainings held out, and the folds of cross-validations: the active party's."""
    question_logs: Period | None = None
    """Who asked online about whom, as keyed hashes; ``audit_days`` in ``[online]`` holds as
    well."""
    transcripts: Period | None = None
    """Of trainings, with which an auditor replays answers; of these the ten newest are kept
    anyhow."""
    alignments: Period | None = None
    """The lists of common ids. A training, and scores by ``--alignment``, need one."""

    @property
    def days(self) -> dict[str, int]:
        """The periods that are given, by key, in days."""
        return {key: int(period[:-1]) * _DAYS[period[-1]] for key, period in self.periods.items()}

    @property
    def periods(self) -> dict[str, str]:
        """The periods that are given, by key, as they are written."""
        return dict(self.model_dump(exclude_none=True))
