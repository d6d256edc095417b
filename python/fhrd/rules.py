"""Which steps of a run stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from . import arguments
from ._engine import SnapshotRow
from .errors import ArgumentTypeError


@dataclass(frozen=True)
class Keep:
    """Which steps of a run stay. A step stays if any rule keeps it. Without rules, all stay.

    Snapshots whose time is from the future stay, and count for no rule.

    Args:
        last: the last steps.
        best: the best steps by a metric: `{"val_loss": ("min", 3)}`. If no step has a number for it, all stay.
        every: steps whose number is a multiple of this.
        tags: steps with any of these tags; `"a,b"` stands for both tags.

    Raises:
        ArgumentTypeError: if a number is no whole number, or a rule has another shape.
        ArgumentError: if a number is below 0, or `best` has neither `min` nor `max`.
    """

    last: int = 0
    best: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, "tuple[str, int]"])
    every: int = 0
    tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        arguments.whole_number(self.last, "last")
        arguments.whole_number(self.every, "every")
        if not isinstance(self.best, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentTypeError(f'best: expected {{"METRIC": ("min", 3)}}, found {self.best!r}')
        for metric, rule in self.best.items():
            if not isinstance(rule, (tuple, list)) or len(rule) != 2:  # pyright: ignore
                raise ArgumentTypeError(f'best: `{metric}`: expected ("min", 3), found {rule!r}')
            check_mode(rule[0], metric)
            arguments.whole_number(rule[1], f"best: `{metric}`", least=1)
        tags = self.tags if isinstance(self.tags, str) else _tuple(self.tags)
        arguments.split_tags(tags)
        # Copies: what is given may change later, or can be read only once.
        object.__setattr__(self, "tags", tags)
        object.__setattr__(self, "best", dict(self.best))

    @staticmethod
    def checked(value: object) -> Keep | None:
        """`value` if it is rules, or `None`.

        Raises:
            ArgumentTypeError: if it is something else.
        """
        if value is None or isinstance(value, Keep):
            return value
        raise ArgumentTypeError(f"keep: expected fhrd.Keep, found {value!r}")

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not (self.last > 0 or self.best or self.every > 0 or self.tags)

    def is_unranked(self, rows: Sequence[SnapshotRow]) -> bool:
        """Whether no row has a number for the metric of a rule."""
        return any(not ranked(rows, metric, mode) for metric, (mode, _) in self.best.items())

    def kept(self, rows: Sequence[SnapshotRow]) -> set[str]:
        """Ids of the rows that stay. `rows` are steps of one run, by ascending step."""
        if self.is_empty or self.is_unranked(rows):
            return {row.id for row in rows}
        stays = {row.id for row in rows[max(0, len(rows) - self.last) :]} if self.last > 0 else set[str]()
        for metric, (mode, count) in self.best.items():
            stays.update(row.id for row in ranked(rows, metric, mode)[:count])
        for row in rows:
            if self.every > 0 and (row.step or 0) % self.every == 0:
                stays.add(row.id)
            if self.has_tag(row):
                stays.add(row.id)
        return stays

    def has_tag(self, row: SnapshotRow) -> bool:
        """Whether the rule of tags keeps a row."""
        lists = [self.tags] if isinstance(self.tags, str) else self.tags
        return any(one in row.tags or set(arguments.split_tags(one)) <= set(row.tags) for one in lists if one)


@dataclass
class Step:
    """A step of a run."""

    #: The snapshot that counts.
    row: SnapshotRow
    #: Others that have files of it.
    parts: list[SnapshotRow] = field(default_factory=list["SnapshotRow"])
    #: Those that were saved again later.
    replaced: list[SnapshotRow] = field(default_factory=list["SnapshotRow"])


def is_part(tags: Iterable[str]) -> bool:
    """Whether a snapshot has some files of a step, which those that come later do not replace: as the engine has it."""
    is_file = "fsspec" in tags and "sharded" not in tags
    return is_file or any(tag.startswith(("lightning:", "lightning-quoted:")) for tag in tags)


def rank(row: SnapshotRow) -> tuple[bool, bool, bool]:
    """Of the snapshots of a step, the last one of the highest rank counts."""
    is_whole = not is_part(row.tags)
    return not row.is_future, is_whole, is_whole or bool(row.metrics)


def steps_of(rows: Iterable[SnapshotRow]) -> dict[str, dict[int, Step]]:
    """The steps of all runs by their numbers. `rows` are sorted by time."""
    found: dict[str, dict[int, Step]] = {}
    for row in sorted(rows, key=lambda row: not row.is_future):
        if row.run is None or row.step is None:
            continue
        step = found.setdefault(row.run, {}).setdefault(row.step, Step(row))
        if row is step.row:
            continue
        if rank(row) >= rank(step.row):
            step.row, row = row, step.row
        (step.parts if is_part(row.tags) else step.replaced).append(row)
    return found


def _tuple(tags: object) -> Any:
    try:
        return tuple(cast("Iterable[Any]", tags))
    except TypeError:
        # It is named as what it is.
        return tags


def check_mode(mode: object, metric: str) -> None:
    """Raises ArgumentError unless a best value is the smallest or the largest."""
    arguments.choice(mode, f"best value of `{metric}`", ("min", "max"))


def ranked(rows: Sequence[SnapshotRow], metric: str, mode: str) -> list[SnapshotRow]:
    """The rows with a number for a metric, the best first; of equal ones the first."""
    check_mode(mode, metric)
    sign = 1.0 if mode == "min" else -1.0
    with_number = [row for row in rows if row.metrics.get(metric, float("nan")) == row.metrics.get(metric)]
    return sorted(with_number, key=lambda row: sign * row.metrics[metric])
