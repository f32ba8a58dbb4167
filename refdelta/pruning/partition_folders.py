"""The names of the folders in which the files of a partition are, as Hive and Spark have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition column that is null."""

# The characters that Hive and Spark escape in folder names of partitions, and NUL, which no file system allows.
_HIVE_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


def partition_prefix(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """The folder of a partition, ``a=1/b=__HIVE_DEFAULT_PARTITION__``, without slashes at its ends.

    The layout is a convention of the field: readers take the values from the log, never from here.

    Args:
        columns: the partition columns in their order, by physical name.
        values: each column's serialized value; None and the empty string are null.
    """
    return "/".join(f"{_hive(column)}={_hive(values.get(column) or HIVE_NULL)}" for column in columns)


def _hive(text: str) -> str:
    return _HIVE_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
