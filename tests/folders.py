"""What tests ask of a folder, and of the system."""

import os


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def refuse(code):
    def call(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return call
