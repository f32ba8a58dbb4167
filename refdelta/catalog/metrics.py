"""The metrics of ``refdelta serve``, for Prometheus: requests, commits, versions and their ratification.

No label has the name of a table, of a token or of a client: the values of each are a short list. Without the package
prometheus-client nothing is counted.
"""

from __future__ import annotations

from typing import Final

OUTCOMES: Final = ("committed", "conflict", "alone", "refused", "unknown", "failed")
"""The outcomes of a request to commit: a version has it; it conflicts; it is to go alone; it was refused, and may be
sent again where it waited for too much; the outcome is not known; the server failed, and nothing was committed.
"""

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_MEMBERS: Final = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server. This class counts nothing: prometheus-client is not installed."""

    def text(self, accept: str) -> tuple[bytes, str] | None:
        """The metrics in a format of Prometheus, and its media type; None if nothing is counted.

        Args:
            accept: the header ``Accept`` of the request.
        """
        del accept
        return None

    def began(self) -> None:
        """A request has begun."""

    def ended(self, operation: str, status: str, seconds: float) -> None:
        """A request has ended.

        Args:
            operation: its operation, of a short list.
            status: the status of its answer; ``none`` if its client has gone.
            seconds: its duration.
        """

    def commit(self, outcome: str) -> None:
        """A request to commit was answered with this outcome, one of :data:`OUTCOMES`."""

    def members(self, count: int) -> None:
        """A version with so many transactions of clients was committed by a group."""

    def ratified(self, versions: int, seconds: float) -> None:
        """The database has ratified, or refused, versions.

        Args:
            versions: how many tables got one.
            seconds: the duration.
        """


class PrometheusMetrics(Metrics):
    """Metrics in a registry of their own. Raises ``ImportError`` without prometheus-client."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "refdelta_requests",
            "Requests, by operation and status of HTTP.",
            ["operation", "status"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "refdelta_request_duration_seconds",
            "The duration of a request, in seconds.",
            ["operation"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._in_progress = Gauge("refdelta_requests_in_progress", "Requests that are under way.", registry=registry)
        self._commits = Counter(
            "refdelta_commits", "Requests to commit that were answered, by outcome.", ["outcome"], registry=registry
        )
        for outcome in OUTCOMES:
            self._commits.labels(outcome)
        self._versions = Counter("refdelta_versions", "Versions of tables that were ratified.", registry=registry)
        self._members = Histogram(
            "refdelta_version_members",
            "The transactions of a version that clients have sent to share one.",
            buckets=_MEMBERS,
            registry=registry,
        )
        self._ratification_seconds = Histogram(
            "refdelta_ratification_duration_seconds",
            "The duration of a ratification by the database, in seconds.",
            buckets=_SECONDS,
            registry=registry,
        )

    def text(self, accept: str) -> tuple[bytes, str]:
        """See :meth:`Metrics.text`."""
        from prometheus_client.exposition import choose_encoder

        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    def began(self) -> None:
        """See :meth:`Metrics.began`."""
        self._in_progress.inc()

    def ended(self, operation: str, status: str, seconds: float) -> None:
        """See :meth:`Metrics.ended`."""
        self._in_progress.dec()
        self._requests.labels(operation, status).inc()
        self._request_seconds.labels(operation).observe(seconds)

    def commit(self, outcome: str) -> None:
        """See :meth:`Metrics.commit`."""
        self._commits.labels(outcome).inc()

    def members(self, count: int) -> None:
        """See :meth:`Metrics.members`."""
        self._members.observe(count)

    def ratified(self, versions: int, seconds: float) -> None:
        """See :meth:`Metrics.ratified`."""
        self._versions.inc(versions)
        self._ratification_seconds.observe(seconds)


def new_metrics() -> Metrics:
    """The metrics of a server that begins; those that count nothing without prometheus-client."""
    try:
        return PrometheusMetrics()
    except ImportError:
        return Metrics()
