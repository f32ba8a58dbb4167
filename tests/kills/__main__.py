"""Kill writers at random moments, many times: ``python -m kills [KILLS] [SEED]``, or ``make search NAME=kills``.

Half of the kills are on local disk, half on S3, in tables of each layout. At the end delta-spark reads every table,
those on S3 from the folder that the server serves. Prints what was killed at what, and fails where anything was lost,
doubled or torn.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from kills.campaign import LAYOUTS, Campaign
from kills.spark import same_as_delta_spark_reads
from refdelta.crosscheck import oracle
from servers.running import Place, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS, SEED = 300, 20261121
# Tables grow with each kill, and so does what is compared behind each.
_IN_A_TABLE = 25


def main(kills: int = KILLS, seed: int = SEED) -> None:
    """Run it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refdelta-kills-") as folder:
        server = S3Server().start()
        try:
            done = list(_campaigns(Path(folder), server, kills, seed))
            with oracle.session() as spark:
                for campaign in done:
                    same_as_delta_spark_reads(spark, campaign)
        finally:
            server.stop()
    killed = sum((campaign.killed for campaign in done), Counter())
    steps = sum(campaign.committed for campaign in done)
    whole = sum(campaign.whole for campaign in done)
    print(f"{killed.total()} processes killed: {', '.join(f'{n} in {what}' for what, n in killed.most_common())}")
    print(
        f"{len(done)} tables; {steps} commits acknowledged, all there; of those not acknowledged {whole} there, whole"
    )
    print(f"delta-spark reads the same from all {len(done)}; {time.monotonic() - began:.0f} s, seed {seed}")


def _campaigns(folder: Path, server: S3Server, kills: int, seed: int) -> Iterator[Campaign]:
    layouts = [*LAYOUTS]
    tables = -(-kills // _IN_A_TABLE)
    for number in range(tables):
        here, layout = number % 2 == 0, layouts[number // 2 % len(layouts)]
        if here:
            path = folder / f"t{number}"
            campaign = Campaign(Place(str(path), {}), path, layout, seed + number)
        else:
            place = server.place()
            campaign = Campaign(place, server.path(place.uri), layout, seed + number, pause=0.15)
        began = time.monotonic()
        campaign.run(min(_IN_A_TABLE, kills - number * _IN_A_TABLE)).finish()
        print(
            f"{'local' if here else 'S3':6} {layout:10} seed {campaign.seed}: {campaign.killed.total()} killed, "
            f"{len(campaign.log)} versions, {time.monotonic() - began:.1f} s",
            flush=True,
        )
        yield campaign


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
