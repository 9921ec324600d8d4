"""Draws who sends what to whom, for light and for dark pages.

::

    python docs/pictures/parties.py          (or: make docs)

A test fails when a picture differs from what this script would draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 880, 360
PARTIES = (20, 250), (630, 860)
"""From where to where the boxes of the active party and of the others reach."""
BROKER = (275, 605)
TITLE = "Who sends what to whom when a tree grows"

MESSAGES = (
    ("right", "gradients of every person, encrypted"),
    ("left", "sums for every candidate split, encrypted"),
    ("right", "to its owner alone: your candidate wins"),
    ("left", "a number for it, and who goes left"),
)

COLOURS: Mapping[str, Mapping[str, str]] = {
    "light": {
        "text": "#1f2328",
        "faint": "#59636e",
        "box": "#f6f8fa",
        "line": "#818b98",
        "message": "#0969da",
    },
    "dark": {
        "text": "#f0f6fc",
        "faint": "#9198a1",
        "box": "#151b23",
        "line": "#656c76",
        "message": "#4493f8",
    },
}


def picture(scheme: str) -> str:
    """The whole SVG."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
            ' font-family="system-ui, sans-serif" font-size="15">',
            f"<title>{TITLE}</title>",
            *drawn(COLOURS[scheme]),
            "</svg>\n",
        ]
    )


def drawn(colours: Mapping[str, str]) -> Iterator[str]:
    """The parts of the picture, from back to front."""
    (bank, bank_end), (others, others_end) = PARTIES
    left, right = BROKER
    yield from box(others + 12, 42, others_end - others - 12, 236, colours)
    yield from box(others, 54, others_end - others - 12, 236, colours)
    yield from box(bank, 48, bank_end - bank, 236, colours)
    yield box_outline(left, 20, right - left, 300, colours)
    middle = (left + right) // 2
    yield words(middle, 46, "RabbitMQ", colours["text"], bold=True)
    yield words(middle, 308, "sees sealed messages", colours["faint"])
    for number, (direction, text) in enumerate(MESSAGES):
        height = 104 + 56 * number
        yield words(middle, height - 9, text, colours["message"])
        yield arrow(bank_end, others, height, direction, colours["message"])
    centre = (bank + bank_end) // 2
    lines = (
        "Bank: the active party",
        "has columns and the label",
        "keeps the trees, the weights",
        "of leaves, and its own splits",
    )
    yield from column(centre, lines, colours)
    centre = (others + others_end - 12) // 2
    lines = (
        "Telco, retail: passive",
        "have other columns",
        "of the same people",
        "keep their thresholds",
    )
    yield from column(centre, lines, colours)
    yield words(
        WIDTH // 2,
        346,
        "Every party calls the broker; nobody opens a port to anybody.",
        colours["faint"],
    )


def column(centre: int, lines: tuple[str, ...], colours: Mapping[str, str]) -> Iterator[str]:
    """What stands in a party's box."""
    first, *others = lines
    yield words(centre, 122, first, colours["text"], bold=True)
    for number, line in enumerate(others):
        yield words(centre, 160 + 28 * number, line, colours["text"])


def box(x: int, y: int, width: int, height: int, colours: Mapping[str, str]) -> Iterator[str]:
    """A party."""
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
        f' fill="{colours["box"]}" stroke="{colours["line"]}"/>'
    )


def box_outline(x: int, y: int, width: int, height: int, colours: Mapping[str, str]) -> str:
    """The broker, which messages pass."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
        f' fill="none" stroke="{colours["line"]}" stroke-dasharray="6 5"/>'
    )


def words(x: int, y: int, text: str, colour: str, bold: bool = False) -> str:
    """A line around ``x``."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="middle"{weight}>{escape(text)}</text>'
    )


def arrow(left: int, right: int, y: int, direction: str, colour: str) -> str:
    """From one side to the other."""
    begin, end = (left + 4, right - 4) if direction == "right" else (right - 4, left + 4)
    back = -9 if direction == "right" else 9
    return (
        f'<path d="M{begin} {y}H{end}m{back} -5l{-back} 5l{back} 5" fill="none"'
        f' stroke="{colour}" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/>'
    )


PICTURES = {f"parties-{scheme}.svg": scheme for scheme in COLOURS}


def main() -> None:
    """Draw all pictures."""
    for name, scheme in PICTURES.items():
        Path(__file__).with_name(name).write_text(picture(scheme), encoding="utf-8")
        print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main()
