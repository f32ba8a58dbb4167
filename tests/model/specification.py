"""Runs of the specification in spec_notes/quint, and their replay through the commit loop of the core.

A run is a trace of :mod:`refdelta.core.commit.loop`'s effects as ``loop.qnt`` has them: who asked what, what befell the
request, and the reply. :class:`Replay` drives the real loop over a store that is a value. After each step the commit
files and the outcomes of all transactions must be those of the trace. The loop must ask what the specification asks.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec

from refdelta.core.commit import effects, leading
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.intent_file import WITHDRAWN, hash_of, names_in
from refdelta.core.commit.intents import Candidate, Head, fate, left_out
from refdelta.core.commit.leading import Chain, Listed, lead_loop
from refdelta.core.commit.loop import group_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.reads import EVERYTHING, ReadSet
from refdelta.core.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConcurrentModificationError,
    InvalidLogError,
)
from refdelta.core.log.actions import Add, CommitInfo, Metadata, Protocol, Txn
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.footprint import fold_commit
from refdelta.errors import StoreError
from servers.install import ServerUnavailableError, quint

FOLDER: Final = Path(__file__).resolve().parents[2] / "spec_notes" / "quint"
STEPS: Final = 40
"""The most steps of a trace."""


class Differs(AssertionError):
    """The loop, or the log after it, is not what the specification says."""


# --- running the specification --------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A run of the simulator.

    Attributes:
        broken: its message if an invariant does not hold; None if all do.
        witnesses: in how many traces each of the witnesses was true.
        traces: the traces, each a list of states.
    """

    broken: str | None
    witnesses: Mapping[str, int]
    traces: list[list[dict[str, Any]]]


def simulate(
    source: Path, main: str, folder: Path | None, *, samples: int, seed: int = 1, witnesses: Sequence[str] = ()
) -> Run:
    """Run a module of a specification at random, with the invariant ``sound``. It is type-checked first.

    Args:
        source: its file.
        main: the name of the module.
        folder: where the traces are put; None for none.
        samples: the number of traces.
        seed: the seed.
        witnesses: definitions that are true in some states.

    Raises:
        ServerUnavailableError: Quint is not installed, with the way to install it.
        RuntimeError: the specification has an error; the message is Quint's.
    """
    command = [shutil.which("node") or "node", str(quint()), "run", str(source), f"--main={main}"]
    command += ["--backend=typescript", "--verbosity=1", f"--seed={seed:#x}", "--invariant=sound"]
    command += [f"--max-samples={samples}", f"--max-steps={STEPS}"]
    if folder is not None:
        command += [f"--n-traces={samples}", f"--out-itf={folder / 'trace'}_{{seq}}.itf.json"]
    command += ["--witnesses", *witnesses]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    said = done.stdout + done.stderr
    if "[ok]" not in said and "[violation]" not in said:
        raise RuntimeError(said[-4000:])
    counts = {name: int(count) for name, count in re.findall(r"(\w+) was witnessed in (\d+) trace", said)}
    found = [] if folder is None else sorted(folder.glob("trace_*.itf.json"))
    return Run(said if done.returncode else None, counts, [read_trace(one.read_bytes()) for one in found])


def read_trace(data: bytes) -> list[dict[str, Any]]:
    """The states of a trace in the Informal Trace Format: variables by their short names, values as Python's."""
    states = json.loads(data)["states"]
    return [
        {name.rpartition("::")[2]: _value(one) for name, one in state.items() if name != "#meta"} for state in states
    ]


def _value(one: Any) -> Any:
    match one:
        case {"#bigint": digits}:
            return int(digits)
        case {"#map": pairs}:
            return {_value(key): _value(value) for key, value in pairs}
        case {"#set": members}:
            return [_value(member) for member in members]
        case {"#tup": members}:
            return tuple(map(_value, members))
        case {"tag": str(tag), "value": value}:
            return (tag, _value(value))
        case dict():
            return {name: _value(value) for name, value in one.items()}
        case list():
            return [_value(member) for member in one]
    return one


# --- transactions, as scenarios.qnt has them ------------------------------------------------------------------------


class Spec(NamedTuple):
    """A transaction of the specification: ``TXS`` of scenarios.qnt. A replay differs where both do not agree."""

    read: int
    reads: bool = False
    app: str = ""


TRANSACTIONS: Final = {
    "a": Spec(0),
    "b": Spec(1, app="x"),
    "c": Spec(1, app="x"),
    "r": Spec(1, reads=True),
    "s": Spec(0, reads=True),
    "t": Spec(1, reads=True, app="x"),
    "k": Spec(-1),
    "l": Spec(-1, reads=True),
    "m": Spec(-1),
}


def prepared(name: str) -> PreparedCommit:
    """The transaction of this name for the core: it adds a file."""
    spec = TRANSACTIONS[name]
    created = [
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id=name, schema_string="{}", partition_columns=[]),
    ]
    applications = frozenset({spec.app} - {""})
    return PreparedCommit(
        read_version=spec.read,
        read_set=ReadSet(version=spec.read, reads=(EVERYTHING,) if spec.reads else (), app_ids=applications),
        actions=[
            *(created if spec.read < 0 else ()),
            *(Txn(app_id=app, version=1) for app in applications),
            _add(name),
        ],
        commit_info={"operation": "WRITE", "readVersion": spec.read, "engineInfo": "refdelta/0.2.0"},
        txn_id=name,
    )


def _add(name: str) -> Add:
    return Add(path=f"file-{name}", partition_values={}, size=1, modification_time=1, data_change=True)


# --- the replay -----------------------------------------------------------------------------------------------------

Key = tuple[str, int]
Content = Mapping[str, Any]
Loop = Callable[[list[Member], Limits], effects.Steps[None]]

LIMITS: Final = Limits(max_repeats=2, max_attempts=3)
"""``MAX_REPEATS`` and ``MAX_ATTEMPTS`` of scenarios.qnt."""

_KINDS: Final[Mapping[type[Exception], str]] = {
    ConcurrentModificationError: "conflict",
    CommitRetriesExhaustedError: "exhausted",
    CommitFailedError: "failed",
    InvalidLogError: "broken",
    StoreError: "refused",
    CommitOutcomeUnknownError: "unknown",
}
"""The outcomes of the specification; the first that fits."""


def _key(content: Content) -> Key:
    return content["by"], content["number"]


@dataclass
class Runner:
    """One writer: runs of the loop with the members that have not ended, one after the other."""

    members: dict[str, Member]
    loop: Loop
    asks: effects.Effect | None = None
    running: effects.Steps[None] | None = None
    read: int = -1
    known: dict[int, bytes] = field(default_factory=dict)
    """The commits that it has read, by version; ``read`` is the first of them."""

    def go(self, reply: effects.Reply | None = None) -> None:
        """Send a reply; without a run, begin one."""
        try:
            if self.running is not None:
                self.asks = self.running.send(reply)  # type: ignore[arg-type]
                return
        except StopIteration:
            self.running = None
        left = [member for member in self.members.values() if member.outcome is None]
        self.asks = None
        if left:
            self.running = self.loop(left, LIMITS)
            try:
                self.asks = next(self.running)
            except StopIteration:
                self.go()


class Replay:
    """A trace of the loop, replayed.

    Args:
        states: the states of the trace.
        loop: the loop.
    """

    def __init__(self, states: Sequence[Mapping[str, Any]], loop: Loop = group_loop) -> None:
        self.states = states
        self.bytes_of: dict[Key, bytes] = {}
        """The bytes of each content of the specification."""
        self.files: dict[int, bytes] = {}
        self.late: list[tuple[int, bytes]] = []
        self.runners = {
            name: Runner({one: Member(prepared(one), LIMITS) for one in carried}, loop)
            for name, carried in states[0]["world"]["carries"].items()
        }
        self.dead: set[str] = set()
        self.cleaned = 0  # log cleanup has removed the versions below
        self.steps = 0

    def run(self) -> Replay:
        """Go through the trace.

        Raises:
            Differs: at the first step after which something differs; with the step.
        """
        for version, content in self.states[0]["log"]["files"].items():
            self.files[version] = self._others(content)
        for name, runner in self.runners.items():
            runner.read = self.states[0]["writers"][name]["read"]["version"]
            if runner.read >= 0:
                runner.known[runner.read] = self.files[runner.read]
            runner.go()
        for number, (before, state) in enumerate(zip(self.states, self.states[1:], strict=False), 1):
            try:
                self._step(before, state)
                self._compare(state)
            except Differs as found:
                last = state["last"]
                step = f"{last['who']} {last['effect']} {last['how']} {last['reply']}"
                raise Differs(f"step {number}, {step}: {found} (in {state['world']})") from None
        return self

    def _step(self, before: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        last = state["last"]
        who, (asked, argument), how = last["who"], last["effect"], last["how"]
        if who in self.runners and how != "dies":
            self._effect(before["writers"][who], asked, argument, how, last["reply"])
        elif how == "dies":
            self.dead.add(who)
        elif how == "arrives":
            data = self._bytes(last["reply"][1][0])
            self.late.remove((argument, data))
            self.files.setdefault(argument, data)
        elif how == "cleanup":
            self.cleaned = state["log"]["first"]
            self.files = {v: data for v, data in self.files.items() if v >= self.cleaned}
        elif how == "made anew":
            self.files = {v: self._others(one) for v, one in state["log"]["files"].items()}
            self.late.clear()
            self.cleaned = 0
        elif how == "another engine commits":
            version = len(before["log"]["table"])
            content = {"by": "another engine", "number": before["left"]["foreign"]}
            self.files.setdefault(version, self._others(content))

    def _effect(self, writer: Mapping[str, Any], asked: str, argument: Any, how: str, reply: tuple[str, Any]) -> None:
        runner = self.runners[writer["name"]]
        mine = runner.asks
        if _text(mine) != (asked, argument):
            raise Differs(f"the loop asks {_text(mine)}")
        self.steps += 1
        version = argument
        match mine:
            case effects.TryCommit(_, data):
                self._encoded(writer["body"], version, data)
                if how in {"done", "lost reply", "resent"}:
                    self.files.setdefault(version, data)
                elif how == "late" and (version, data) not in self.late:
                    self.late.append((version, data))
            case effects.Withdraw() if how == "done":
                self.files.pop(version, None)
            case effects.ReadCommits(first, last) if how == "done":
                found = [None if one["by"] == "none" else self._bytes(one) for one in reply[1]]
                if found != [self.files.get(one) for one in range(first, last + 1)]:
                    raise Differs("the store has other commits in these versions")
                runner.known.update((one, data) for one, data in enumerate(found, first) if data is not None)
            case effects.VersionExists() if how == "done" and reply[0] != (found := self._look(runner, version)):
                raise Differs(f"the store says {found}")
        if reply[0] == "Exists":
            runner.known.update(enumerate(map(self._bytes, reply[1]), version))
        runner.go(self._reply(reply))

    def _look(self, runner: Runner, version: int) -> str:
        """Whether a version is the commit that was read, and the first one that was read is, too."""
        if version < 0:
            return "No" if self.files else "Yes"
        for one in (runner.read, version):
            if one in self.files and self.files[one] != runner.known[one]:
                return "Replaced"
            if one >= max(0, self.cleaned) and one not in self.files:
                return "Replaced"
        return "Yes" if version in self.files else "No"

    def _reply(self, reply: tuple[str, Any]) -> effects.Reply:
        match reply:
            case ("Exists", sent):
                return effects.Exists(tuple(map(self._bytes, sent)))
            case ("Commits", found):
                return effects.Commits(tuple(None if one["by"] == "none" else self._bytes(one) for one in found))
            case ("Newest", version):
                return effects.Newest(version)
            case ("Elapsed", _):
                return effects.Elapsed(0.0)
            case ("Failed", _):
                return effects.Failed(StoreError("refused"))
            case ("Unknown", _):
                return effects.Unknown()
            case ("Committed", _):
                return effects.Committed()
        return {"Yes": effects.Yes, "No": effects.No, "Replaced": effects.Replaced}[reply[0]]()

    # --- the bytes of contents ---

    def _encoded(self, content: Content, version: int, data: bytes) -> None:
        """The bytes of a put: the same ones for each repeat, and with the transactions of the specification."""
        if self.bytes_of.setdefault(_key(content), data) != data:
            raise Differs("the bytes of a repeated put are other ones")
        names = list(fold_commit(version, data, "").txn_ids)
        if names != content["ids"]:
            raise Differs(f"the loop puts a version of {names}, and the specification one of {content['ids']}")

    def _others(self, content: Content) -> bytes:
        """The commit of another engine."""
        name = "-".join(map(str, _key(content))).replace(" ", "-")
        data = encode_commit([CommitInfo(fields={"operation": "WRITE", "txnId": name}), _add(name)])
        return self.bytes_of.setdefault(_key(content), data)

    def _bytes(self, content: Content) -> bytes:
        found = self.bytes_of.get(_key(content))
        if found is None:
            raise Differs(f"the loop has never put {_key(content)}")
        return found

    # --- what must be the same ---

    def _compare(self, state: Mapping[str, Any]) -> None:
        wanted = {version: self._bytes(content) for version, content in state["log"]["files"].items()}
        if self.files != wanted:
            raise Differs(f"the log has the versions {sorted(self.files)}, or others' bytes in {sorted(wanted)}")
        for name, writer in state["writers"].items():
            for txn_id, outcome in writer["outcomes"].items():
                result = self.runners[name].members[txn_id].outcome
                found = self._outcome(result)
                if found != (outcome["kind"], outcome["version"]):
                    raise Differs(f"{txn_id} is {outcome['kind']} {outcome['version']}, and the loop says {found}")
                ids = state["log"]["files"].get(outcome["version"], {}).get("ids", [])
                number = ids.index(txn_id) if len(ids) > 1 and txn_id in ids else None
                if isinstance(result, CommitOutcome) and ids and result.member != number:
                    raise Differs(f"{txn_id} is member {number} of {ids}, and the loop says {result.member}")
            if name not in self.dead and (self.runners[name].asks is None) != (writer["stage"][0] == "Ended"):
                raise Differs(f"{name} is at {writer['stage'][0]}, and the loop asks {self.runners[name].asks}")

    @staticmethod
    def _outcome(outcome: CommitOutcome | Exception | None) -> tuple[str, int]:
        if isinstance(outcome, CommitOutcome):
            return "committed", -1 if outcome.version is None else outcome.version
        kinds = (kind for error, kind in _KINDS.items() if isinstance(outcome, error))
        return ("open" if outcome is None else next(kinds, repr(outcome))), -1


def _text(effect: effects.Effect | None) -> tuple[str, Any]:
    """An effect as the specification has it."""
    match effect:
        case None:
            return "Nothing", ()
        case effects.ReadCommits(first, last):
            return "ReadCommits", (first, last)
        case effects.Pause(_, reason):
            return "Pause", reason
        case effects.NewestVersion(after):
            return "NewestVersion", after
        case effects.TryCommit(version) | effects.VersionExists(version) | effects.Withdraw(version):
            return type(effect).__name__, version
    return type(effect).__name__, ()


def differing(traces: Iterable[Sequence[Mapping[str, Any]]], loop: Loop = group_loop) -> Iterator[str]:
    """What differs, for each of the traces in which something does."""
    for states in traces:
        try:
            Replay(states, loop).run()
        except Differs as found:
            yield str(found)


# --- intents --------------------------------------------------------------------------------------------------------


class IntentReplay:
    """A trace of ``intents.qnt``, replayed through the loop of a leader and the decisions of those that wait.

    Where a writer leads, the loop of a leader is run over the log of the trace, with the intents that are listed there,
    up to its put. The version must name the transactions that the specification names. Where a writer ends its wait,
    the log must say the same of it. Rows are application ids here: two transactions under one conflict.

    Args:
        states: the states of the trace.
        window: ``WINDOW`` of intents.qnt.
    """

    def __init__(self, states: Sequence[Mapping[str, Any]], window: int = 2) -> None:
        self.states, self.window = states, window
        self.bytes_of: dict[int, bytes] = {}
        """The bytes of each put of the specification, by its number; 0 is another engine's."""
        self.led, self.ended, self.steps = 0, 0, 0

    def run(self) -> IntentReplay:
        """Go through the trace.

        Raises:
            Differs: at the first step at which something differs; with the step.
        """
        self.bytes_of[0] = encode_commit([CommitInfo(fields={"operation": "WRITE", "txnId": "another engine"})])
        for number, (before, state) in enumerate(zip(self.states, self.states[1:], strict=False), 1):
            what, who = state["last"]["what"], state["last"]["who"]
            try:
                if what in {"leads", "withdraws"}:
                    self._lead(before["log"], state["writers"][who]["plan"], state["last"]["listed"])
                elif who and before["writers"].get(who, {}).get("at") == "waits" and what != "dies":
                    self._end(before["log"], before["writers"][who]["own"], what)
            except Differs as found:
                raise Differs(f"step {number}, {who} {what}: {found}") from None
        return self

    def _lead(self, log: Sequence[Content], plan: Content, listed: Sequence[Content]) -> None:
        data = self._put(log, listed)
        if data is None:
            if plan["members"]:
                raise Differs("the loop puts no version")
            # Its own conflicts, and the shell withdraws it.
            fields = {"operation": "WITHDRAW", "txnId": f"put-{plan['put']}", WITHDRAWN: sorted(plan["withdrawn"])}
            data = encode_commit([CommitInfo(fields=fields)])
        else:
            named = names_in(data)[0]
            wanted = [[one["id"] for one in plan["members"]], sorted(plan["refused"]), sorted(plan["withdrawn"])]
            members = [*fold_commit(len(log), data, "").txn_ids]
            if [members, sorted(named.refused), sorted(named.withdrawn)] != wanted:
                raise Differs(f"the loop puts {named}, in the order {members}, and the specification {wanted}")
        self.bytes_of[plan["put"]] = data
        self.led += 1
        self.steps += 1

    def _put(self, log: Sequence[Content], listed: Sequence[Content]) -> bytes | None:
        """The bytes that the loop of a leader puts first."""
        versions = self._versions(log)
        chain = Chain()
        for version, data in enumerate(versions):
            chain.note(version, data)
        # A listed intent that a version names ends the loop; the shell deletes it, and lists anew.
        open_ = [one for one in listed if not any(one["id"] in named for named in chain.named.values())]
        found = [Listed(self._head(one, versions), Member(self._prepared(one), LIMITS), 0) for one in open_]
        own = msgspec.structs.replace(found[0], age_ms=None)
        with mock.patch.object(leading, "left_out", self._left_out):
            steps = lead_loop(own, found[1:], chain, LIMITS, lambda: 1)
            try:
                effect = next(steps)
                while not isinstance(effect, effects.TryCommit):
                    effect = steps.send(self._answer(versions, effect))
            except StopIteration:
                if isinstance(own.member.outcome, Exception) and not isinstance(
                    own.member.outcome, ConcurrentModificationError
                ):
                    raise own.member.outcome from None
                return None
        if effect.version != len(log):
            raise Differs(f"the loop puts version {effect.version}")
        return effect.data

    def _left_out(self, candidate: Candidate) -> str | None:
        return left_out(msgspec.structs.replace(candidate, window=self.window))

    @staticmethod
    def _answer(versions: Sequence[bytes], effect: effects.Effect) -> effects.Reply:
        match effect:
            case effects.ReadCommits(first, last):
                return effects.Commits(tuple(versions[first : last + 1]))
            case effects.NewestVersion():
                return effects.Newest(len(versions) - 1)
            case effects.VersionExists():
                return effects.Yes()
        raise Differs(f"the loop asks {effect}")

    def _end(self, log: Sequence[Content], own: Content, what: str) -> None:
        versions = self._versions(log)
        head = self._head(own, versions)
        chain = [names_in(data)[0] for data in versions[head.base + 1 :]]
        found = fate(head, head.base_hash, chain, self.window)
        if found.kind != what:
            raise Differs(f"the log says {found}")
        self.ended += 1
        self.steps += 1

    def _versions(self, log: Sequence[Content]) -> list[bytes]:
        if unknown := {version["put"] for version in log} - self.bytes_of.keys():
            raise Differs(f"no leader has made the puts {unknown}")
        return [self.bytes_of[version["put"]] for version in log]

    @staticmethod
    def _head(one: Content, versions: Sequence[bytes]) -> Head:
        base_hash = hash_of(versions[one["base"]])
        return Head(id=one["id"], base=one["base"], base_hash=base_hash, replaces=tuple(sorted(one["replaces"])))

    @staticmethod
    def _prepared(one: Content) -> PreparedCommit:
        applications = frozenset({one["row"]} - {""})
        return PreparedCommit(
            read_version=one["base"],
            read_set=ReadSet(version=one["base"], app_ids=applications),
            actions=[*(Txn(app_id=app, version=1) for app in applications), _add(one["id"])],
            commit_info={"operation": "WRITE", "readVersion": one["base"], "engineInfo": "refdelta/0.2.0"},
            txn_id=one["id"],
        )


# --- traces that are kept -------------------------------------------------------------------------------------------

KEPT: Final = Path(__file__).with_name("traces.json")
"""A few short traces, for machines without node."""


def kept_traces() -> list[list[dict[str, Any]]]:
    """The traces of :data:`KEPT`."""
    return [[_pairs(state) for state in states] for states in json.loads(KEPT.read_bytes())]


def slim(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a replay needs of a state, as JSON has it."""
    log, writers = state["log"], state["writers"]
    files = [[version, {**content}] for version, content in sorted(log["files"].items())]
    return {
        "world": {"carries": state["world"]["carries"], "without": state["world"]["without"]},
        "log": {"files": files, "table": [0] * len(log["table"]), "first": log["first"]},
        "writers": {
            name: {
                "name": name,
                "body": one["body"],
                "stage": [one["stage"][0], []],
                "outcomes": one["outcomes"],
                "read": {"version": one["read"]["version"]},
            }
            for name, one in sorted(writers.items())
        },
        "last": state["last"],
        "left": {"foreign": state["left"]["foreign"]},
    }


def _pairs(state: dict[str, Any]) -> dict[str, Any]:
    state["log"]["files"] = dict(state["log"]["files"])
    last = state["last"]
    last["effect"] = (last["effect"][0], _tuple(last["effect"][1]))
    last["reply"] = tuple(last["reply"])
    return state


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


WITNESSES: Final[Mapping[str, tuple[str, ...]]] = {
    "scenarios": (
        *("withoutAbsent", "withoutId", "withoutSettle", "withoutCheck", "withoutOrder", "withoutAnyId"),
        *("withoutConfirm", "withoutObject", "withoutWithdraw"),
        *("twoMembers", "conflictFound", "unknownSaid", "failedSaid", "withdrawn"),
    ),
    "staged": (
        *("withoutSettle", "withoutRatified", "withoutInOrder", "withoutPublished", "withoutAskedFirst"),
        *("publishedBehind", "readInBetween"),
    ),
    "beside": (
        *("withoutReplaces", "withoutNamed", "withoutEnds", "withoutWindow", "withoutOrder", "withoutSettle"),
        *("ledForAnother", "refusedOne", "withdrewOne"),
    ),
}
"""By module: that something breaks without each rule; and that the runs come to where something may happen."""


def run(main: str, folder: Path, samples: int, *, seed: int = 1) -> Run:
    """Run a module with its witnesses.

    Args:
        main: one of :data:`WITNESSES`.
        folder: where the traces are put.
        samples: the number of traces.
        seed: the seed.
    """
    files = {"scenarios": "scenarios.qnt", "staged": "catalog.qnt", "beside": "intents.qnt"}
    to = None if main == "staged" else folder  # those of catalogs are not replayed
    return simulate(FOLDER / files[main], main, to, samples=samples, seed=seed, witnesses=WITNESSES[main])


def choose_kept(traces: Sequence[Sequence[Mapping[str, Any]]], found_by: Callable[[Any], set[str]]) -> None:
    """Write :data:`KEPT`: few and short traces by which all wrong loops are found that the traces find.

    Args:
        traces: the traces to choose from.
        found_by: the names of the wrong loops that a trace finds.
    """
    finds = [(found_by(states), states) for states in sorted(traces, key=len)]
    left, kept = set[str]().union(*(names for names, _ in finds)), list[Any]()
    while left:
        names, states = max(finds, key=lambda one: len(one[0] & left))
        left -= names
        kept.append([json.dumps(slim(state), separators=(",", ":"), sort_keys=True) for state in states])
    KEPT.write_text("[\n" + ",\n".join("[\n" + ",\n".join(states) + "\n]" for states in kept) + "\n]\n")


def _main() -> int:
    parser = argparse.ArgumentParser("python -m model.specification", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--samples", type=int, default=1000, help="traces of each module")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = 0
    for main in WITNESSES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(main, Path(folder), given.samples, seed=given.seed)
            except ServerUnavailableError as error:
                print(error, file=sys.stderr)
                return 1
        missing = [name for name in WITNESSES[main] if not found.witnesses[name]]
        print(f"{main}: {found.broken or 'every invariant holds'}; not witnessed: {', '.join(missing) or 'nothing'}")
        failed += found.broken is not None
        replays: list[Replay | IntentReplay] = []
        for states in found.traces:
            first = states[0]
            if main == "scenarios" and not first["world"]["without"]:
                replays.append(Replay(states).run())
            elif main == "beside" and not first["without"]:
                replays.append(IntentReplay(states).run())
        if replays:
            print(f"{main}: {len(replays)} traces replayed, {sum(one.steps for one in replays):,} steps of the core")
    return failed


if __name__ == "__main__":
    sys.exit(_main())
