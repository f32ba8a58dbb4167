"""``python -m fuzz.guided TARGET FOLDER [options]``: the same targets, led by the branches that inputs take.

It needs Atheris (``pip install atheris``), which is no dependency of the project: nothing else here does. FOLDER gets
the inputs that reach something new; what is put into ``corpus/TARGET`` is tried by ``make search NAME=fuzz``. Options
are those of libFuzzer, such as ``-runs`` and ``-max_total_time``.
"""

from __future__ import annotations

import inspect
import random
import sys
from pathlib import Path
from typing import Any

from fuzz.mutate import mutate
from fuzz.targets import judge, targets


def main() -> None:
    """Run until something is found, or as long as the options say."""
    import atheris

    name, folder, *options = sys.argv[1:]
    target = targets()[name]
    if target.outside:
        sys.exit(f"{name} goes on to another library, and its inputs are not kept: python -m fuzz.run {name}")
    places = Path(folder)
    places.mkdir(parents=True, exist_ok=True)
    seeds = target.inputs()
    for number, data in enumerate(seeds):
        (places / f"seed-{number}").write_bytes(data)
    for module in [module for name, module in sys.modules.items() if name.startswith("refdelta.")]:
        for value in list(vars(module).values()):
            if inspect.isfunction(value) and value.__module__ == module.__name__:
                atheris.instrument_func(value)

    def changed(data: bytes, most: int, seed: int) -> Any:
        return mutate(random.Random(seed), data, target.kind, seeds, target.tokens)[:most]

    atheris.Setup([sys.argv[0], folder, *options], lambda data: judge(target, data) and None, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
