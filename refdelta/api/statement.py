"""What every transaction by hand is: one snapshot, and one statement over it, beside reads and appends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.staging import Staging

P = ParamSpec("P")
R = TypeVar("R")


class OneStatement:
    """One snapshot, and at most one statement over it; aborted when its block is left without an end.

    Args:
        staging: what becomes of the transaction.
        snapshot: what it sees.

    Raises:
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
    """

    def __init__(self, staging: Staging, snapshot: Snapshot):
        snapshot.check_writable()
        self._staging = staging
        self._snapshot = snapshot
        self._over: str | None = None
        self._statement: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over is None:
            self.abort()

    @property
    def version(self) -> int:
        """The version that the transaction sees."""
        return self._snapshot.version

    @property
    def snapshot(self) -> Snapshot:
        """What the transaction sees."""
        return self._snapshot

    def run(
        self,
        statement: str,
        stage: Callable[Concatenate[Staging, Snapshot, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R | None:
        """Hold a statement: all of it or, where it raises, nothing, and then another one may follow.

        Args:
            statement: what it is called.
            stage: stages what it does to the snapshot.
            *args: passed on to it.
            **kwargs: likewise.

        Returns:
            What ``stage`` returns; None where it is skipped, because the application's version is recorded already.

        Raises:
            InvalidArgumentError: the transaction is over, or holds a statement already.
        """
        self._check_open(statement)
        if self._statement is not None:
            raise InvalidArgumentError(
                f"cannot {statement}: this transaction holds a statement already ({self._statement}), and one is all "
                "that a transaction may hold beside reads and appends; commit it and begin another one"
            )
        result = None
        with self._staging.all_or_nothing():
            if not self._staging.already_recorded:
                result = stage(self._staging, self._snapshot, *args, **kwargs)
        self._statement = statement
        return result

    def abort(self) -> None:
        """Give up: nothing becomes visible, and the files that were written are removed."""
        self._check_open("abort")
        self._over = "aborted"
        self._staging.abort()

    def _check_open(self, verb: str) -> None:
        if self._over is not None:
            raise InvalidArgumentError(
                f"cannot {verb}: this transaction was {self._over} already; begin() starts another one"
            )
