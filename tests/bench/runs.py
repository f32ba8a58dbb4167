"""A run of benchmarks that nobody measured: what ``make bench`` keeps, made up."""

import json

LOG, STALE, SNAPSHOT = "bench_log.py", "bench_stale.py", "bench_snapshot.py"
CONTENTION = "bench_contention.py"


def engine(*seconds, settings="", **figures):
    told = {name.replace("_", " "): [value] for name, value in figures.items()}
    return {"settings": settings, "seconds": {str(n): s for n, s in enumerate(seconds)}, "figures": told}


def bench(file, name, engines, *, goals=(), unit="", units=1, params=None, **sizes):
    info = {"engines": engines, "sizes": sizes, "unit": unit, "units": units, "note": "", "seed": 1}
    info["goals"] = [{"rival": rival, "most": most, "text": f"at most {most:g} x {rival}"} for rival, most in goals]
    return {"name": name, "fullname": f"{file}::{name}", "params": params, "extra_info": info}


def machine(**more):
    packages = {"refdelta": "0.1.0", "deltalake": "1.6.6", "delta-spark": "4.4.0"}
    found = {"packages": packages, "cores": 2, "memory": 8 * 2**30, "machine": "x86_64", "size": "default"}
    return found | {"cpu": {"brand_raw": "A & B <fast>"}, "python_version": "3.11.7"} | more


def everything():
    """A benchmark of each kind that is drawn, and one that is not."""
    found = [
        bench(
            LOG,
            "bench_log_only_commits",
            {
                "refdelta": engine(0.04, 0.05, 0.06, settings="no fsync"),
                "deltalake": engine(1.0, 1.2, 1.3, settings="no fsync"),
                "floor": engine(0.02, 0.02, 0.02),
            },
            goals=[("deltalake", 0.05), ("floor", 1.5)],
            unit="commit",
            units=100,
        )
    ]
    for winners in (10, 100, 1_000, 10_000):
        times = {
            "refdelta": engine(2e-4 * winners, 3e-4 * winners, settings="cold"),
            "deltalake": engine(3e-3 * winners, 4e-3 * winners, settings="its defaults"),
            "floor": engine(1e-4 * winners, 1e-4 * winners),
        }
        found.append(bench(STALE, f"bench_stale[{winners}]", times, unit="winner", units=winners, winners=winners))
    for kind in ("json", "checkpoint"):
        for files in (10_000, 100_000, 1_000_000):
            times = {"refdelta": engine(1e-6 * files), "deltalake": engine(2e-6 * files), "floor": engine(8e-7 * files)}
            params = {"kind": kind, "number": 0}
            found.append(bench(SNAPSHOT, f"bench_cold[{kind}-{files}]", times, params=params, files=files))
    for mix in ("appends", "disjoint rows", "same rows"):
        for writers in (1, 2, 4, 8):
            conflicts = {"appends": 0, "disjoint rows": 0, "same rows": 1 - 1 / writers}[mix]
            times = {
                "refdelta": engine(1.0, 1.1, settings="no fsync", abort_rate=conflicts),
                "refdelta, files decide": engine(1.2, 1.5, settings="no fsync", abort_rate=1 - 1 / writers),
                "deltalake": engine(3.0 * writers, 3.5 * writers, settings="no fsync", abort_rate=1 - 1 / writers),
            }
            name = f"bench_contention[{mix}-{writers}]"
            found.append(bench(CONTENTION, name, times, unit="commit", units=200, writers=writers, mix=mix))
    return found


def write(path, benches=None, **more):
    told = {
        "benchmarks": everything() if benches is None else benches,
        "machine_info": machine(**more),
        "commit_info": {"id": "0123456789abcdef", "dirty": False},
        "datetime": "2026-11-21T17:56:28+00:00",
    }
    path.write_text(json.dumps(told))
    return path
