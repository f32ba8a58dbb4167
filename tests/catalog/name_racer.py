"""A program that races for one name of a catalog: it creates, drops and purges the table, or it writes to it.

``python -m catalog.name_racer URL WAREHOUSE FOLDER ROLE SEED`` with the role ``maker`` or ``writer``. It prints a line
of JSON for each table that it made (``made``: its id and its folder) and for each commit that was acknowledged
(``wrote``: the id of the table, and the version). A writer ends with its input.
"""

import json
import random
import sys
import threading

from catalog.contract import SCHEMA, append, log_of
from refdelta import errors
from refdelta.catalog import SqlCatalog
from refdelta.transaction import background

NAME = "sales.orders"


def told(**what):
    print(json.dumps(what), flush=True)


def make(catalog, folder, dice):
    """Create and drop, at a folder of its own or always at the same one."""
    for _ in range(20):
        try:
            if dice.random() < 0.6:
                where = folder if dice.random() < 0.5 else None
                table = catalog.create_table(NAME, SCHEMA, where, commits=dice.choice(["staged", "inline"]))
                told(made=log_of(table).ratifier._entry.table_id, folder=table.table_uri)
            else:
                catalog.drop_table(NAME, purge=dice.random() < 0.5)
        except (errors.TableAlreadyExistsError, errors.TableNotFoundError, errors.ConcurrentModificationError):
            continue
        except errors.CommitOutcomeUnknownError:
            continue  # the other one has dropped it while it was created


def write(catalog, dice, stop):
    number = 0
    while not stop.is_set():
        try:
            table = catalog.table(NAME)
            for _ in range(dice.randint(1, 4)):
                number += 1
                version = append(table, number).version
                told(wrote=log_of(table).ratifier._entry.table_id, version=version)
        except (errors.TableNotFoundError, errors.StoreError, errors.CommitFailedError, errors.DataFileError):
            continue
        except errors.InvalidLogError:
            continue  # purged while it was opened


def main(url, warehouse, folder, role, seed):
    stop = threading.Event()
    with SqlCatalog(url, warehouse, locations=[folder]) as catalog:
        if role == "maker":
            make(catalog, folder, random.Random(seed))
        else:
            threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
            write(catalog, random.Random(seed), stop)
        background.settle()


if __name__ == "__main__":
    main(*sys.argv[1:])
