"""Small tables of rows with named columns."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, TypeVar, overload

_Row = TypeVar("_Row")

#: An id of a snapshot, of which a table shows the start.
_ID = re.compile("[0-9a-f]{64}")
#: Rows that a notebook shows.
_ROWS_MAX = 1000


class Table(Sequence[Mapping[str, Any]]):
    """Rows with named columns, such as the steps of a run.

    A row is a mapping from column to value; what is shown has the first 8 digits of ids. `to_pandas` needs pandas.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns: tuple[str, ...] = tuple(columns)
        self._rows: list[Mapping[str, Any]] = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Table: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Table:
        if isinstance(index, slice):
            return Table(self.columns, self._rows[index])
        return self._rows[index]

    def column(self, name: str) -> list[Any]:
        """The values of one column; `None` where a row has none."""
        if name not in self.columns:
            raise KeyError(name)
        return [row.get(name) for row in self._rows]

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`."""
        import pandas  # type: ignore[import-untyped, unused-ignore]  # pyright: ignore

        rows = [[row.get(name) for name in self.columns] for row in self._rows]
        return pandas.DataFrame(rows, columns=list(self.columns))  # pyright: ignore

    def __repr__(self) -> str:
        cells = [list(self.columns)]
        cells += [[_shown(row.get(name)) for name in self.columns] for row in self._rows]
        widths = [max(len(line[at]) for line in cells) for at in range(len(self.columns))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in cells]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table("", self.columns, self._rows)


class Rows(list[_Row]):
    """A list of reports, which a notebook shows as a table."""

    def to_table(self) -> Table:
        """The same as a table, with a column for each field."""
        rows: list[dict[str, Any]] = [dataclasses.asdict(row) for row in self]  # type: ignore[call-overload]  # pyright: ignore
        return Table(list(rows[0]) if rows else [], rows)

    def _repr_html_(self) -> str:
        table = self.to_table()
        return html_table("", table.columns, table)


def html_table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """A table for a notebook, with the cells that a text has."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = [line([_shown(row.get(name)) for name in columns], "td") for row in rows[:_ROWS_MAX]]
    rest = f"<p>{len(rows) - _ROWS_MAX} more rows</p>" if rows[_ROWS_MAX:] else ""
    caption = f"<p>{escape(title)}</p>" if title else ""
    return f"{caption}<table><thead>{line(columns, 'th')}</thead><tbody>{''.join(lines)}</tbody></table>{rest}"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = str(value)
    return text[:8] if _ID.fullmatch(text) else text
