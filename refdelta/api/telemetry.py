"""``instrument``: commits as spans and metrics of OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta._version import __version__
from refdelta.arguments import missing_package
from refdelta.transaction.events import CommitEvent, Observation, observe_commits

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_NS = 1_000_000_000
_FAILED = frozenset({"conflict", "retries_exhausted", "unknown", "failed"})


def instrument(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> Observation:
    """Report each commit of this process to OpenTelemetry: a span, and metrics.

    The span is called after the operation (``delta.commit DELETE``), is a child of the caller's span, and has the
    attributes of :class:`~refdelta.transaction.events.CommitEvent`. The metrics are ``delta.commits`` (by table,
    operation, outcome and rule), ``delta.commit.duration`` and ``delta.commit.wait`` (seconds),
    ``delta.commit.attempts``, ``delta.commit.winners`` and ``delta.commit.size`` (bytes).

    Args:
        tracer_provider: takes the spans; None for the global one.
        meter_provider: takes the metrics; None for the global one.

    Returns:
        The observation, which ends with ``close()`` or as a context manager.

    Raises:
        InvalidArgumentError: the package ``opentelemetry-api`` is not installed.

    Example::

        from refdelta import instrument

        instrument()
        table.delete("id = 3")
    """
    try:
        from opentelemetry import metrics, trace
    except ModuleNotFoundError:
        raise missing_package("instrument", "opentelemetry-api", "opentelemetry") from None
    tracer = (tracer_provider or trace.get_tracer_provider()).get_tracer("refdelta", __version__)
    meter = (meter_provider or metrics.get_meter_provider()).get_meter("refdelta", __version__)
    commits = meter.create_counter("delta.commits", "{commit}", "Commits by their outcome")
    histograms = {
        "seconds": meter.create_histogram("delta.commit.duration", "s", "Duration of a commit, pauses included"),
        "seconds_waited": meter.create_histogram("delta.commit.wait", "s", "Time in pauses between attempts"),
        "attempts": meter.create_histogram("delta.commit.attempts", "{attempt}", "Versions that a commit tried"),
        "winners": meter.create_histogram("delta.commit.winners", "{commit}", "Commits of others that it checked"),
        "bytes": meter.create_histogram("delta.commit.size", "By", "Bytes of its puts"),
    }

    def report(event: CommitEvent) -> None:
        labels = {"delta.table": event.table, "delta.operation": event.operation or "", "delta.outcome": event.outcome}
        commits.add(1, labels if event.rule is None else {**labels, "delta.rule": event.rule})
        for name, histogram in histograms.items():
            histogram.record(getattr(event, name), labels)
        _span(tracer, event)

    return observe_commits(report)


def _span(tracer: Tracer, event: CommitEvent) -> None:
    from opentelemetry.trace import SpanKind, Status, StatusCode

    begin = int(event.started * _NS)
    name = f"delta.commit {event.operation}" if event.operation else "delta.commit"
    span = tracer.start_span(name, kind=SpanKind.CLIENT, start_time=begin, attributes=_attributes(event))
    if event.outcome in _FAILED:
        span.set_status(Status(StatusCode.ERROR, f"{event.outcome}: {event.rule or event.error}"))
    span.end(begin + int(event.seconds * _NS))


def _attributes(event: CommitEvent) -> dict[str, Any]:
    """The fields that have a value, and the time of each effect."""
    fields: dict[str, Any] = {
        "delta.table": event.table,
        "delta.operation": event.operation,
        "delta.txn_id": event.txn_id,
        "delta.isolation": event.isolation,
        "delta.read_version": event.read_version,
        "delta.version": event.version,
        "delta.member": event.member,
        "delta.outcome": event.outcome,
        "delta.rule": event.rule,
        "delta.winner": event.winner,
        "delta.winner_member": event.winner_member,
        "delta.attempts": event.attempts,
        "delta.puts": event.puts,
        "delta.bytes": event.bytes,
        "delta.winners": event.winners,
        "delta.rules": event.rules,
        "delta.rows": event.rows,
        "error.type": event.error,
    }
    for name, effect in event.effects.items():
        fields |= {f"delta.effect.{name}.count": effect.count, f"delta.effect.{name}.seconds": effect.seconds}
    return {name: value for name, value in fields.items() if value is not None}
