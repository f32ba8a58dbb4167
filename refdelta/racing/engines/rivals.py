"""The common part of the engines of other libraries: a statement by its kind, and the check by the rows alone."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import ClassVar

import pyarrow as pa

from refdelta.errors import InvalidArgumentError
from refdelta.racing.mixes import Mix, Statement, check_rows, statement
from refdelta.racing.throughput import Acknowledged, Tally


class RivalHands(abc.ABC):
    """A handle of another library. Its methods do a statement and commit it, once; they raise one of ``aborts``."""

    aborts: tuple[type[Exception], ...] = ()
    unknown: tuple[type[Exception], ...] = ()

    def __init__(self, mix: Mix) -> None:
        self._mix = mix

    def commit(self, task: int) -> Acknowledged | None:
        """See :meth:`refdelta.racing.Hands.commit`."""
        wanted = statement(self._mix, task)
        match wanted.what:
            case "append":
                self.append(wanted.rows)
            case "delete":
                self.delete(wanted.predicate)
            case "update":
                self.update(wanted)
            case "merge":
                self.merge(wanted)
            case "read":
                self.read(wanted)
                return None
        return Acknowledged(None)

    @abc.abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Append rows."""

    @abc.abstractmethod
    def delete(self, predicate: str) -> None:
        """Delete the rows of a predicate."""

    @abc.abstractmethod
    def update(self, wanted: Statement) -> None:
        """Update the rows of a statement."""

    @abc.abstractmethod
    def merge(self, wanted: Statement) -> None:
        """Add 1 to the n of ids that are there, and insert the other rows."""

    @abc.abstractmethod
    def read(self, wanted: Statement) -> None:
        """Read the rows of a statement from the newest version."""

    @abc.abstractmethod
    def compact(self) -> Acknowledged | None:
        """See :meth:`refdelta.racing.Hands.compact`."""


class RivalEngine(abc.ABC):
    """The :class:`refdelta.racing.BenchEngine` of another library.

    Raises ``InvalidArgumentError`` where it is not installed.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    module: ClassVar[str]

    def __init__(self) -> None:
        try:
            __import__(self.module)
        except ImportError as error:
            raise InvalidArgumentError(
                f"the engine {self.name} needs the package {self.packages[0]}, which is not installed: "
                f"pip install {self.packages[0]}"
            ) from error

    @property
    def versions(self) -> Mapping[str, str]:
        """See :attr:`refdelta.racing.BenchEngine.versions`."""
        return {name: version(name) for name in self.packages}

    @abc.abstractmethod
    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`refdelta.racing.BenchEngine.prepare`."""

    @abc.abstractmethod
    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> RivalHands:
        """See :meth:`refdelta.racing.BenchEngine.open`."""

    @abc.abstractmethod
    def rows(self, folder: str, storage_options: Mapping[str, str]) -> pa.Table:
        """All rows of the newest version, read by the library itself."""

    def check(
        self, folder: str, mix: Mix, tallies: Sequence[Tally], storage_options: Mapping[str, str]
    ) -> Sequence[str]:
        """By the rows alone: those of all acknowledged tasks, perhaps of some with an unknown outcome, no others."""
        rows = self.rows(folder, storage_options)
        done = [commit.task for tally in tallies for commit in tally.commits if commit.task >= 0]
        unknown = [task for tally in tallies for task in tally.unknown]
        problems = check_rows(rows, mix, done)
        return problems if not problems or not unknown else check_rows(rows, mix, [*done, *unknown])
