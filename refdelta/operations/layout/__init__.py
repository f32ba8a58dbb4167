"""OPTIMIZE and REORG: rewrites of files that merge, sort or cluster them, or remove deleted rows."""

from collections.abc import Mapping
from typing import Literal

Aim = Literal["compact", "sort", "purge", "cluster", "upgrade"]
"""The aim of a rewrite: fewer files, rows sorted by given columns, no deletion vectors, rows clustered by the table's
clustering columns, or files for new table properties.
"""

STATEMENTS: Mapping[Aim, str] = {
    "compact": "compact",
    "sort": "z_order",
    "purge": "reorg_purge",
    "cluster": "cluster",
    "upgrade": "reorg_upgrade_uniform",
}
"""The names of the statements by their aim."""
