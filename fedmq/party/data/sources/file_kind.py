"""What a file is, by its first bytes: for whoever wrote another ``type`` beside it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["mistaken_for"]

_KINDS = {
    b"PAR1": ("parquet", 'a Parquet file; write type = "parquet"'),
    b"PK\x03\x04": ("zip", "an Excel file, or another archive; save its sheet as CSV"),
    b"\xd0\xcf\x11\xe0": ("excel", "an old Excel file; save its sheet as CSV"),
    b"SQLite format 3\x00": (
        "sqlite",
        'a SQLite database; write type = "sql", url = "sqlite:///FILE" and a query',
    ),
    b"\x1f\x8b": ("gzip", "compressed; unpack it"),
    b"\xff\xfe": ("utf-16", 'text in UTF-16; write encoding = "utf-16"'),
    b"\xfe\xff": ("utf-16", 'text in UTF-16; write encoding = "utf-16"'),
}
_LONGEST = max(map(len, _KINDS))


def mistaken_for(path: Path, *right: str) -> str:
    """What the file at ``path`` is and what to do, where it is none of the kinds in ``right``.

    Empty where nothing is known of it. Kinds: parquet, zip, excel, sqlite, gzip, utf-16, text.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.is_file():  # a pipe can be read once only
        return ""
    with path.open("rb") as file:
        first = file.read(4096)
    for mark, (kind, what) in _KINDS.items():
        if first.startswith(mark):
            return "" if kind in right else f"it is {what}"
    is_text = bool(first) and b"\x00" not in first
    return 'it looks like text; write type = "csv"' if is_text and "text" not in right else ""
