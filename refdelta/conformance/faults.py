"""Cases on tables of a store whose requests meet faults: lost replies, late and repeated requests, errors, cut bodies.

A fault meets a request by chance, from a seed and the id of the case, while the transactions of the case run; the table
is made and read without faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

from refdelta.conformance.cases import Case
from refdelta.engine.log.location import scratch_folder
from refdelta.errors import InvalidArgumentError
from refdelta.proxy import KINDS, Proxy, RandomFaults, Request
from refdelta.proxy.endpoint import Endpoint

FAULTS: Final = tuple(kind for kind in KINDS if not kind.startswith("hang"))
"""The kinds of faults. One that is never answered costs the client its time-out, and is left out."""


class Faults:
    """A proxy before a store, for :func:`refdelta.conformance.run`.

    Args:
        uri: the place of the tables, in S3, Azure or GCS: each case has a new folder there, which is removed.
        storage_options: the options of the store, one of which has its endpoint.
        rate: the part of the requests that meets a fault, from 0 to 1. Some faults meet the same request several times.
        seed: the seed of the faults.

    Raises:
        InvalidArgumentError: the place has no endpoint, or the rate is out of range.

    Example:
        >>> from refdelta.conformance.faults import Faults
        >>> Faults("s3://tables/t", {"endpoint_url": "http://127.0.0.1:9000"}, rate=0.1, seed=7).met
        0
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None, *, rate: float, seed: int) -> None:
        if not 0 <= rate <= 1:
            raise InvalidArgumentError(f"the rate of faults is between 0 and 1, not {rate}")
        self._uri, self._rate, self._seed = uri, rate, seed
        self._store = Endpoint.of(uri, storage_options, "--faults")
        self._proxy = Proxy(self._store, self._fault)
        self._plan: RandomFaults | None = None
        self.met = 0
        """The number of faults that requests met."""

    def __enter__(self) -> Self:
        """Start the proxy."""
        self._proxy.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._proxy.stop()

    @property
    def options(self) -> dict[str, Any]:
        """The storage options by way of the proxy."""
        return self._store.through(self._proxy.endpoint)

    @contextmanager
    def folder(self) -> Iterator[str]:
        """A new folder for a table, which is removed after the block."""
        with scratch_folder(self._uri, self._store.options, "refdelta-conformance") as folder:
            yield folder

    @contextmanager
    def during(self, case: Case) -> Iterator[None]:
        """Let requests meet faults in this block. After it none is on its way to the store."""
        self._plan = RandomFaults(f"{self._seed}-{case.id}", self._rate, kinds=FAULTS)
        try:
            yield
        finally:
            self.met += self._plan.total
            self._plan = None
            self.settle()

    def settle(self) -> None:
        """Wait until no request is on its way to the store: what its client gave up may arrive later."""
        self._proxy.settle()

    def _fault(self, request: Request) -> str | None:
        plan = self._plan
        return None if plan is None else plan(request)
