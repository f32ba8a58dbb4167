"""``DeltaTable.alter``: changes of a table's properties and columns, one commit each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.api.alter_columns import ColumnAlterer
from refdelta.core.table.row_tracking import enables
from refdelta.errors import ConcurrentModificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from refdelta.transaction.results import CommitProperties, CommitResult

FILES_AT_ONCE = 20_000
"""How many files get row ids in one commit: as delta-spark, so that no commit is larger than some megabytes."""

_TRIES = 10


class TableAlterer(ColumnAlterer):
    """Alters one table; made by :attr:`refdelta.DeltaTable.alter`.

    Every change of properties or of the schema fails the transactions that began before it, as the documentation of
    write conflicts says. A change that leaves the table as it is commits nothing.
    """

    def set_table_properties(
        self,
        properties: Mapping[str, Any],
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Set table properties; the others stay.

        Args:
            properties: names and values. ``delta.*`` names are those that exist, others are the user's own.
                ``delta.feature.<name>`` with the value ``supported`` adds a table feature. ``delta.enableRowTracking``
                gives ids to the rows that are there; of a table of many files that takes several commits.
                ``delta.columnMapping.mode`` as ``none`` ends a column mapping, and all files are written anew.
            isolation: as for :meth:`refdelta.DeltaTable.begin`. A change of the table passes over no append at either
                level.
            commit_properties: how to commit, and what to note in the commit.

        Raises:
            InvalidArgumentError: a property that does not exist, or a value that it cannot have.
            UnsupportedFeatureError: a property asks for a feature that this engine cannot honour; it is named.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        if enables(properties):
            self._backfill_row_ids(isolation, commit_properties)
        return self._commit(lambda txn: txn.set_properties(properties), commit_properties, isolation)

    def _backfill_row_ids(self, isolation: str | None, commit_properties: CommitProperties | None) -> None:
        """Give row ids to the files of a large table. Where others change files of such a commit, it begins anew."""
        lost = 0
        while True:
            try:
                with self._begin(isolation=isolation, commit_properties=commit_properties) as txn:
                    if not txn.backfill_row_ids(max(1, FILES_AT_ONCE >> lost)):
                        return
                    txn.commit()
            except ConcurrentModificationError:
                lost += 1
                if lost == _TRIES:
                    raise

    def unset_table_properties(
        self,
        names: Sequence[str],
        *,
        if_exists: bool = False,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Remove table properties, so that each has its default again.

        Args:
            names: of the properties.
            if_exists: whether to pass over those that the table does not have.
            isolation: as for :meth:`set_table_properties`, like the argument that follows.
            commit_properties: see there.

        Raises:
            InvalidArgumentError: the table has no such property.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.unset_properties(names, if_exists=if_exists), commit_properties, isolation)

    def cluster_by(
        self,
        columns: Sequence[str] | str | None,
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Change by which columns the table is clustered (CLUSTER BY). By them ``optimize.cluster()`` clusters what
        comes from now on, and ``optimize.cluster(full=True)`` what is there.

        Properties stay as they are. A table that is created clustered has deletion vectors and tracks rows, so that
        ``optimize.cluster()`` never conflicts with UPDATE, DELETE and MERGE; an existing one gets neither here, and no
        row ids for the files that are there, so it can conflict until ``delta.enableDeletionVectors`` and
        ``delta.enableRowTracking`` are set, see :meth:`set_table_properties`.

        Args:
            columns: up to four, in any case; dots lead into structs, backticks keep a dot in a name. None or an empty
                list: no columns any more (CLUSTER BY NONE).
            isolation: as for :meth:`set_table_properties`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ColumnNotFoundError: there is no such column.
            InvalidArgumentError: the table is partitioned; too many columns, one named twice, or one of a type without
                minimum and maximum in the statistics.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.cluster_by(columns), commit_properties, isolation)

    def add_constraint(
        self,
        constraints: Mapping[str, str],
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Add a CHECK constraint: a condition that every row satisfies. The rows that are there are held to it first.

        Args:
            constraints: its name, which is stored in lower case, and the condition, SQL in Spark's dialect; one.
            isolation: as for :meth:`set_table_properties`, like the argument that follows.
            commit_properties: see there.

        Raises:
            ConstraintViolationError: rows of the table for which it is false or null.
            PredicateError: the condition cannot be parsed or bound.
            InvalidArgumentError: there is a constraint of this name.
            ConcurrentModificationError: another writer's commit conflicts; it may have added a row that breaks it.
        """
        return self._commit(lambda txn: txn.add_constraint(constraints), commit_properties, isolation)

    def drop_constraint(
        self,
        name: str,
        raise_if_not_exists: bool = True,
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Drop a CHECK constraint.

        Args:
            name: in any case.
            raise_if_not_exists: whether it is an error that there is none; else nothing is committed then.
            isolation: as for :meth:`set_table_properties`, like the argument that follows.
            commit_properties: see there.

        Raises:
            InvalidArgumentError: the table has no such constraint.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(
            lambda txn: txn.drop_constraint(name, raise_if_not_exists=raise_if_not_exists), commit_properties, isolation
        )

    def set_table_name(self, name: str | None, *, commit_properties: CommitProperties | None = None) -> CommitResult:
        """Name the table.

        Args:
            name: its name; None takes it away.
            commit_properties: as for :meth:`set_table_properties`.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.set_table_name(name), commit_properties)

    def set_table_description(
        self, description: str | None, *, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Describe the table.

        Args:
            description: what it is; None takes that away.
            commit_properties: as for :meth:`set_table_properties`.

        Raises:
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(lambda txn: txn.set_table_description(description), commit_properties)

    def set_domain_metadata(
        self, domain: str, configuration: str | None, *, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Set or remove a metadata domain of the user's own: a text that the table carries along (PROTOCOL.md, "Domain
        Metadata"). The table gets the feature ``domainMetadata`` where it lacks it.
        :meth:`refdelta.api.transaction.WriteTransaction.set_domain_metadata` does it together with other changes.

        Args:
            domain: its name, which does not begin with ``delta.``.
            configuration: what it says; None removes it.
            commit_properties: as for :meth:`set_table_properties`.

        Returns:
            What was committed; its version is None where the domain says so already.

        Raises:
            InvalidArgumentError: a domain of the engines, or one that is not there to be removed.
            ConcurrentTransactionException: another writer has set the same domain meanwhile.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        with self._begin(commit_properties=commit_properties) as txn:
            from refdelta.operations.alter.domains import set_domain

            txn.run("set_domain_metadata", set_domain, domain, configuration, upgrade=True)
            return txn.commit()

    def add_feature(
        self,
        feature: Any,
        allow_protocol_versions_increase: bool = False,
        *,
        isolation: str | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> CommitResult:
        """Let the table support a feature, whether or not it uses it (PROTOCOL.md, "Table Features").

        Args:
            feature: a name such as ``deletionVectors``, one of deltalake's ``TableFeatures``, or a list of these. Those
                that it requires come with it.
            allow_protocol_versions_increase: whether the protocol may get higher versions, which shuts out older
                readers and writers.
            isolation: as for :meth:`set_table_properties`, like the argument that follows.
            commit_properties: see there.

        Returns:
            What was committed; its version is None where the table supports them already.

        Raises:
            InvalidArgumentError: a feature that does not exist, or higher versions that were not allowed.
            UnsupportedFeatureError: a feature that this engine cannot honour.
            ConcurrentModificationError: another writer's commit conflicts.
        """
        return self._commit(
            lambda txn: txn.add_feature(feature, allow_protocol_versions_increase), commit_properties, isolation
        )

    def drop_feature(
        self, feature: Any, *, truncate_history: bool = False, commit_properties: CommitProperties | None = None
    ) -> CommitResult:
        """Take a feature out of the table's protocol, so that those who do not know it can use the table again.

        What the feature has left in the table goes first: properties are unset, and files with deletion vectors are
        rewritten, or all files where columns were mapped or of other types. Several commits are made. Where readers
        need the feature for the versions before, checkpoints fence these off, and ``checkpointProtection`` is added,
        which writers must know; or the versions are removed.

        Args:
            feature: a name such as ``deletionVectors``, or one of deltalake's ``TableFeatures``.
            truncate_history: whether the versions that need the feature are removed from the log instead. The first
                call says how long to wait, a day by default, and the second one drops the feature. It is the only way
                to drop ``checkpointProtection``.
            commit_properties: what to note in the commits.

        Returns:
            What the last commit was.

        Raises:
            InvalidArgumentError: the table does not support the feature, needs it for another one, or uses it in a way
                that only its user can end; nobody drops it; the history is too young to be removed.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
            ConcurrentModificationError: other writers go on using it.
        """
        from refdelta.api.dropper import drop_feature

        return drop_feature(
            lambda: self._begin(commit_properties=commit_properties), feature, truncate_history=truncate_history
        )
