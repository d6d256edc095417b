"""What keeps a repository in order: tags, copies, names, statistics, checks and repairs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from . import _engine as native  # pyright: ignore[reportPrivateUsage]
from . import arguments, reports
from ._engine import SnapshotRow
from .arguments import PathLike, Progress
from .checkpoint import Checkpoint
from .errors import ArgumentError, ArgumentTypeError, DamagedError, NotFoundError
from .reports import (
    CheckReport,
    CopiedSnapshot,
    FamilyModel,
    PruneReport,
    PublishedName,
    RepositoryStatistics,
)
from .table import Rows


class Care(ABC):
    """The part of a repository that keeps it in order."""

    @abstractmethod
    def _use(self) -> native.Engine:
        """The engine, of an open repository."""

    @abstractmethod
    def checkpoint(
        self, *, run: str | None = None, step: int | str | None = None, snapshot: str | None = None
    ) -> Checkpoint:
        """A checkpoint by run and step, or by the id of its snapshot."""

    @abstractmethod
    def _rows(self) -> list[SnapshotRow]:
        """The readable snapshots, oldest first. Warns of others."""

    def _name_of(self, snapshot: Checkpoint | str) -> str:
        """The id of a checkpoint, or the name of a snapshot that is given. Warns if what cannot be read may be meant.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) if it is neither.
        """
        if isinstance(snapshot, Checkpoint):
            return snapshot.id
        if arguments.text(snapshot, "snapshot").startswith(("latest", "run:")):
            self._rows()
        return snapshot

    def tag(
        self,
        snapshot: Checkpoint | str,
        *,
        set: Sequence[str] | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> Checkpoint:
        """Changes the tags of a snapshot, which has another id then.

        Args:
            snapshot: a checkpoint, an id, or a name of the command line such as `run:first@latest`.
            set: all tags that it shall have.
            add: tags to add.
            remove: tags to take away. One that is called exactly so goes, too, also if it has a comma.

        Raises:
            NotFoundError: (a LookupError) if there is no such snapshot.
        """
        away = [remove] if isinstance(remove, str) else arguments.names(remove, "remove")
        wanted = self._name_of(snapshot)
        id = native.tag_snapshot(
            self._use(),
            wanted,
            set=None if set is None else arguments.split_tags(set),
            add=arguments.split_tags(add),
            remove=[*arguments.split_tags(remove), *away],
        )
        return self.checkpoint(snapshot=id)

    def copy_from(
        self,
        source: Care,
        snapshots: Sequence[str] = (),
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> list[CopiedSnapshot]:
        """Copies snapshots of another repository into this one, the oldest first. What was copied before is skipped.

        Args:
            source: the other repository.
            snapshots: ids, or names of the command line such as `run:first@latest`; all by default.
            dry_run: store nothing.
            progress: called now and then with counters.

        Raises:
            NotFoundError: (a LookupError) if there is no such snapshot.
            DamagedError: (an OSError) if one cannot be read; the others are copied.
        """
        wanted, progress = arguments.names(snapshots, "snapshots"), arguments.progress(progress)
        arguments.flags(dry_run=dry_run)
        if not isinstance(source, Care):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentTypeError(f"source: expected a repository, found {source!r}")
        text = native.copy_snapshots(self._use(), source._use(), wanted, dry_run=dry_run, report=progress)
        rows: list[dict[str, Any]] = json.loads(text)
        failed = [row for row in rows if row["error"] is not None]
        if failed:
            raise DamagedError(
                f"{len(failed)} of {len(rows)} snapshots are not copied: {(failed[0]['original'] or '')[:8]} "
                f"{failed[0]['error']}"
            )
        return [reports.read(CopiedSnapshot, row) for row in rows]

    def publish(
        self,
        snapshot: Checkpoint | str,
        name: str,
        *,
        revision: str = "main",
        path: PathLike | None = None,
        dataset: bool = False,
        replace: bool = True,
    ) -> PublishedName:
        """Gives a snapshot, or a directory of it, a name that can move: `me/llama` with the revision `production`.

        Nothing is copied. Rules of `forget` leave what has a name alone, and `fhrd serve` shows it to clients of the Hub.

        Args:
            snapshot: a checkpoint, an id, or a name of the command line such as `run:first@latest`.
            name: `ORG/NAME`.
            revision: such as `production`. The same name and revision move here.
            path: a directory in the snapshot; all of it by default.
            dataset: publish it as a dataset, not as a model.
            replace: delete what the revision named before. Else it is still found by its commit.

        Raises:
            ArgumentError: (a ValueError) if it cannot have that name.
            NotFoundError: (a LookupError) if there is no such snapshot or directory.
        """
        wanted = self._name_of(snapshot)
        arguments.flags(dataset=dataset, replace=replace)
        text = native.publish(
            self._use(),
            wanted,
            None if path is None else arguments.path(path, "path"),
            name=arguments.text(name, "name"),
            revision=arguments.text(revision, "revision"),
            is_dataset=dataset,
            replace=replace,
        )
        return reports.published(json.loads(text))

    def unpublish(self, name: str, *, revision: str | None = None, dataset: bool = False) -> list[str]:
        """Takes a name away, with one revision or with all. Returns the ids of the snapshots that held it.

        Raises:
            ArgumentError: (a ValueError) if nothing has that name.
        """
        arguments.text(name, "name")
        if revision is not None:
            arguments.text(revision, "revision")
        gone: list[str] = _rows(native.unpublish(self._use(), name, revision=revision, is_dataset=dataset))
        return gone

    def published(self) -> list[PublishedName]:
        """What has a name, with the last snapshot of each name and revision. Warns of snapshots that cannot be read."""
        rows = (reports.published(row) for row in _rows(native.published_names(self._use())))
        return Rows({(row.kind, row.name, row.revision): row for row in rows}.values())

    def named(self, name: str, revision: str = "main", *, dataset: bool = False) -> Checkpoint:
        """The checkpoint that a name stands for: `repo.named("me/llama", "production").arrays()`.

        Raises:
            NotFoundError: (a LookupError) if nothing has that name.
        """
        wanted = ("dataset" if dataset else "model", name, revision)
        for row in self.published():
            if (row.kind, row.name, row.revision) == wanted:
                return self.checkpoint(snapshot=row.snapshot)
        raise NotFoundError(f"no {wanted[0]} is published as `{name}@{revision}`")

    def lineage(self, *snapshots: Checkpoint | str) -> list[FamilyModel]:
        """The models of snapshots, or of all, each behind the one that it was stored against. Warns of snapshots that
        cannot be read.

        Raises:
            NotFoundError: (a LookupError) if there is no such snapshot.
        """
        wanted = [self._name_of(one) for one in snapshots]
        rows: list[dict[str, Any]] = _rows(native.families(self._use(), wanted))
        return Rows(reports.read(FamilyModel, row) for row in rows)

    def statistics(self) -> RepositoryStatistics:
        """Sizes of the repository."""
        return reports.read(RepositoryStatistics, json.loads(native.statistics(self._use())))

    def prune(self, *, dry_run: bool = False, grace_seconds: float = 86400.0) -> PruneReport:
        """Gives back the space of what no snapshot needs.

        What is younger than `grace_seconds` stays, because another program may be about to use it.

        Raises:
            ArgumentError: (a ValueError) if `grace_seconds` is below 0.
        """
        grace = arguments.number(grace_seconds, "grace_seconds")
        arguments.flags(dry_run=dry_run)
        return reports.read(PruneReport, json.loads(self._use().prune(dry_run, grace)))

    def check(self, *, read_data: bool = False, progress: Progress | None = None) -> CheckReport:
        """Verifies the repository. `defect_count` is 0 for a sound one. With `read_data`, reads every byte."""
        arguments.flags(read_data=read_data)
        return reports.read(CheckReport, json.loads(self._use().check(read_data, arguments.progress(progress))))

    def repair(self, part: str, *, dry_run: bool = False, forget: bool = False) -> dict[str, Any]:
        """Repairs a part as `fhrd repair` does. Returns its report, with the keys of that command's JSON.

        Args:
            part: `"index"`, `"containers"` or `"snapshots"`; in this order if several are damaged.
            dry_run: of snapshots, only say what would be done.
            forget: of snapshots, delete the damaged ones after they are stored again without what is lost.

        Raises:
            ArgumentError: (a ValueError) if there is no such part.
        """
        arguments.choice(part, "part", ("index", "containers", "snapshots"))
        arguments.flags(dry_run=dry_run, forget=forget)
        if part != "snapshots" and (dry_run or forget):
            raise ArgumentError("`dry_run` and `forget` are of snapshots")
        report: dict[str, Any] = json.loads(native.repair(self._use(), part, dry_run=dry_run, forget=forget))
        return report


def _rows(text: str) -> Any:
    """The rows of a listing. Warns if snapshots cannot be read, so that some may be missing."""
    found: dict[str, Any] = json.loads(text)
    reports.warn_of_damaged(found["damaged"])
    return found["rows"]
