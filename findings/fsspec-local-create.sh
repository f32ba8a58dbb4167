#!/usr/bin/env bash
# fsspec: several threads create one local file with mode="create", and each is told that it did.
#
# A good guess: pipe_file(path, data, mode="create") is the file system's exclusive creation, as for object stores it is
# a conditional put, so of several writers one succeeds and the others get FileExistsError. Instead the local file
# system asks whether the file exists, and then opens it for writing: data that was acknowledged is overwritten.
# Seen with fsspec 2026.9.0 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install fsspec==2026.9.0

expect <<'END'
pipe_file(mode="create"): files with several winners: some of them
open("xb"): files with several winners: none
END

run <<'PYTHON'
import tempfile
import threading

import fsspec

local = fsspec.filesystem("file")


def piped(path, data):
    local.pipe_file(path, data, mode="create")


def opened(path, data):
    with local.open(path, "xb") as file:
        file.write(data)


def several(create, path):
    """True if more than one of eight threads has created the file."""
    barrier, winners = threading.Barrier(8), []

    def writer(name):
        barrier.wait()
        try:
            create(path, b"%d" % name)
        except FileExistsError:
            return
        winners.append(name)

    threads = [threading.Thread(target=writer, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(winners) > 1


for title, create in (('pipe_file(mode="create")', piped), ('open("xb")', opened)):
    folder = tempfile.mkdtemp()
    found = any(several(create, f"{folder}/{number}") for number in range(2000))
    print(f"{title}: files with several winners: {'some of them' if found else 'none'}")
PYTHON
