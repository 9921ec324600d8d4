"""How numbers are spelt in text: what stands before decimals, and between thousands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedmq.party.configuration.data import DataSection

__all__ = ["PLAIN", "NumberSpelling"]


@dataclass(frozen=True, slots=True)
class NumberSpelling:
    """``decimal`` and ``thousands`` as a party's file has them."""

    decimal: str = "."
    thousands: str = ""

    @classmethod
    def of(cls, data: DataSection) -> NumberSpelling:
        """As ``data`` says."""
        return cls(data.decimal, data.thousands or "")

    def number(self, text: str) -> float:
        """The number that ``text`` spells.

        Raises:
            ValueError: it spells none, or its thousands stand in other groups than of three digits.
        """
        if self.thousands and self.thousands in text:
            whole, point, decimals = text.partition(self.decimal)
            groups = rf"[+-]?\d{{1,3}}(?:{re.escape(self.thousands)}\d{{3}})+"
            if not re.fullmatch(groups, whole):
                raise ValueError(text)
            text = whole.replace(self.thousands, "") + point + decimals
        if self.decimal != ".":
            if "." in text:
                raise ValueError(text)
            text = text.replace(self.decimal, ".")
        return float(text)

    def reads(self, text: str) -> bool:
        """Whether ``text`` spells a number."""
        try:
            self.number(text)
        except ValueError:
            return False
        return True


PLAIN = NumberSpelling()
"""As Python spells numbers."""
