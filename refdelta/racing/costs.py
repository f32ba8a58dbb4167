"""The costs of a commit in a store: requests, bytes and their price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from refdelta.proxy import Request

PUT_PRICE = 5.0 / 1_000_000
"""US dollars for a PUT, COPY, POST or LIST request to S3 Standard in us-east-1."""
GET_PRICE = 0.4 / 1_000_000
"""US dollars for a GET, HEAD or other request there."""
_PRICES = {"GET": GET_PRICE, "HEAD": GET_PRICE, "DELETE": 0.0, "DELETE-MANY": 0.0}
_COMMITS = 1_000


@dataclass(frozen=True)
class Costs:
    """The requests of a race, for each commit of its writers; those of reads, aborts and compaction are included.

    Attributes:
        requests: by method, the number of requests; LIST, DELETE-MANY, PART and FINISH (of an upload) are methods, too.
        bytes_up: bytes of the bodies of requests.
        bytes_down: bytes of the bodies of replies.
        dollars: US dollars for the requests of 1,000 commits at S3's list prices. Refused ones have a price, too.
        refused: the number of requests in the whole race that the store refused beyond its rate.

    Example:
        >>> from refdelta.proxy import Request
        >>> from refdelta.racing.costs import Costs
        >>> Costs.of([Request("PUT", "t/x.parquet", "data", "", False, 900, 200)], 1)
        Costs(requests={'PUT': 1.0}, bytes_up=900.0, bytes_down=0.0, dollars=0.005, refused=0)
    """

    requests: Mapping[str, float]
    bytes_up: float
    bytes_down: float
    dollars: float
    refused: int

    @classmethod
    def of(cls, requests: Sequence[Request], commits: int) -> Costs:
        """The costs of these requests.

        Args:
            requests: the requests.
            commits: the number of commits, at least 1.
        """
        counts = Counter(request.method for request in requests)
        price = sum(count * _PRICES.get(method, PUT_PRICE) for method, count in counts.items())
        return cls(
            requests={method: count / commits for method, count in sorted(counts.items())},
            bytes_up=sum(request.body for request in requests) / commits,
            bytes_down=sum(request.reply for request in requests) / commits,
            dollars=_COMMITS * price / commits,
            refused=sum(request.fault is not None for request in requests),
        )
