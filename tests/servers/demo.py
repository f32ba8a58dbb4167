"""``refdelta demo`` on S3: versitygw is started for it, and delta-spark reads the folder that it serves.

    python tests/servers/demo.py [options of refdelta demo]

The objects stay in ``demo-table/s3-<n>`` as files; versitygw is stopped.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a program beside the tests, of which it uses the servers

from refdelta.cli import main
from servers.running import BUCKET, S3_KEY, S3_SECRET, S3Server


def run(arguments: list[str]) -> int:
    """Run the demo on a server of its own; its exit status."""
    server = S3Server(fresh_folder()).start()
    try:
        os.environ |= {
            "AWS_ACCESS_KEY_ID": S3_KEY,
            "AWS_SECRET_ACCESS_KEY": S3_SECRET,
            "AWS_ENDPOINT_URL": server.endpoint,
        }
        table = f"s3://{BUCKET}/demo/flights"
        sys.argv[0] = "refdelta"  # what the demo tells its user to call
        print(f"versitygw serves {server.folder} at {server.endpoint}")
        status = main(["demo", "--path", table, "--spark-folder", str(server.path(table)), *arguments])
        print(f"\nversitygw stops now. Its objects are files, so these tables are in {server.path(table).parent} too.")
        return status
    finally:
        server.stop()


def fresh_folder() -> Path:
    """The next ``demo-table/s3-<n>``."""
    for number in itertools.count(1):
        folder = Path("demo-table") / f"s3-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder.resolve()
    raise AssertionError("there is always a next number")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
