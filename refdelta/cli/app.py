"""The group ``refdelta``: its commands in sections, each with its module and the first sentence of its help.

A module is imported when its command runs, shows its help or completes its arguments. ``refdelta --help`` and the
completion of a command's name import none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from refdelta import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMAND: Final = "refdelta.command"
"""The key under which the ``meta`` of a context of click has that of the command that runs."""

OWN, COMMIT, PLACE = "Options", "Commit options", "Catalog and store options"
"""The panels of a command's help, in their order: its own options, how it commits, and where the table is."""

_LAST = ("as_json", "help")


class Verb(NamedTuple):
    """A command of the group.

    Attributes:
        module: the module of ``refdelta.cli`` that has it.
        sentence: the first sentence of its docstring.
    """

    module: str
    sentence: str


SECTIONS: Final[Mapping[str, Mapping[str, Verb]]] = {
    "Read": {
        "read": Verb("reading", "Print rows of TABLE."),
        "changes": Verb("reading", "Print what changed in TABLE, row by row: its change data feed."),
        "follow": Verb(
            "reading",
            "Print the rows of TABLE, then the changes of each version as they are committed, until Ctrl-C.",
        ),
        "sql": Verb("sql", "Run one statement in Spark's SQL, such as SELECT, INSERT, MERGE or ALTER TABLE."),
    },
    "Write": {
        "write": Verb(
            "writing",
            "Write Parquet, CSV or JSON files into TABLE, in one commit: files, folders, patterns, or - for standard "
            "input.",
        ),
        "delete": Verb(
            "changing", "Delete the rows of TABLE for which a condition is true; where it is null they stay."
        ),
        "update": Verb("changing", "Set columns in the rows of TABLE for which a condition is true."),
        "merge": Verb(
            "changing",
            "Update, insert and delete rows of TABLE by the rows of SOURCE: files, or another table (MERGE).",
        ),
    },
    "Create and alter": {
        "create": Verb("defining", "Create TABLE without rows."),
        "alter": Verb(
            "defining",
            "Change properties, columns, constraints or features of TABLE: one kind of change in one commit (ALTER "
            "TABLE).",
        ),
        "clone": Verb(
            "defining",
            "Create the table TARGET with the rows of TABLE, whose files it refers to (SHALLOW CLONE): nothing is "
            "copied.",
        ),
        "convert": Verb("writing", "Make a table of the Parquet files in TABLE."),
    },
    "Look": {
        "history": Verb(
            "inspect", "List the versions of TABLE, newest first: time, operation, user, note and parameters."
        ),
        "detail": Verb("inspect", "Describe TABLE: name, size, partition columns, properties, protocol."),
        "files": Verb(
            "inspect",
            "List the data files that make up TABLE, the newest first, with their sizes, rows and partition values.",
        ),
        "log": Verb(
            "inspect", "Show the actions of one version of TABLE, the newest unless said: what its log file holds."
        ),
        "diff": Verb(
            "seeing", "Show how version B of TABLE differs from version A: rows, columns, properties, protocol."
        ),
        "timeline": Verb(
            "seeing",
            "Draw the versions of TABLE: which version each transaction began at, and which ones it was committed "
            "over.",
        ),
    },
    "Conflicts": {
        "why": Verb(
            "seeing",
            "Explain why a transaction on TABLE failed, or would have conflicted with another one.",
        ),
        "conflicts": Verb("seeing", "Show which operations conflict when one commits first."),
    },
    "Maintain": {
        "optimize": Verb(
            "maintaining",
            "Put small files of TABLE together; or sort its rows, or free it of rows that were deleted.",
        ),
        "vacuum": Verb(
            "maintaining",
            "Show which files in TABLE's folder no version within the retention needs; with --no-dry-run, remove them.",
        ),
        "restore": Verb(
            "maintaining",
            "Make TABLE what it was at an earlier version or time, in a new version: rows, schema and properties.",
        ),
        "checkpoint": Verb(
            "writing",
            "Write a checkpoint of TABLE's newest version, so that readers need not replay the log before it.",
        ),
        "verify": Verb(
            "verifying",
            "Check all of TABLE against the Delta protocol: log, checkpoints, checksums, statistics, vectors, rows.",
        ),
    },
    "Catalogs": {
        "catalog": Verb("catalogs", "List, name, publish, adopt and drop the tables of a catalog."),
        "serve": Verb("catalogs", "Serve the tables of a catalog to other programs, by Unity Catalog's Delta API."),
    },
    "Try, measure and compare engines": {
        "demo": Verb("running", "Write a year of flights from several processes at once, then check everything."),
        "bench": Verb(
            "benching",
            "Measure commits per second at URI: a folder, or a place in a store such as s3://bucket/scratch.",
        ),
        "conformance": Verb(
            "conforming", "Run concurrent transactions on an engine, and judge what is left of the tables."
        ),
        "crosscheck": Verb(
            "crosschecking", "Compare with delta-spark what refdelta sees in TABLE, or does in a scenario."
        ),
    },
}
"""The commands, in the order of ``refdelta --help``."""


class _Commands(MutableMapping[str, click.Command]):
    """The commands by name. Importing a module adds its commands."""

    def __init__(self, verbs: Mapping[str, Verb]) -> None:
        self._verbs = verbs
        self._added: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._added:
            import_module(f"refdelta.cli.{self._verbs[name].module}")
        return self._added[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verbs)

    def __len__(self) -> int:
        return len(self._verbs)


class PanelOption(click.Option):
    """An option that the help shows in a panel of its own.

    Args:
        declarations: its names.
        panel: the title of the panel.
        settings: as for ``click.Option``.
    """

    def __init__(self, declarations: Sequence[str], *, panel: str, **settings: Any) -> None:
        self.panel = panel
        super().__init__(declarations, **settings)


def _order(param: click.Parameter) -> int:
    """The place of an option in a panel: 0 for those that keep their order, then those that most commands have."""
    return _LAST.index(param.name) + 1 if param.name in _LAST else 0


class ShownCommand(click.Command):
    """A command whose help has its options in panels, and ends with examples.

    Args:
        examples: the arguments of one call each, after the program's name.
        settings: as for ``click.Command``.
    """

    def __init__(self, *, examples: Sequence[str] = (), **settings: Any):
        self.examples = tuple(examples)
        super().__init__(**settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, after a call of the context's ``obj``, if it has one. Its context is noted for errors."""
        ctx.meta[COMMAND] = ctx
        if ctx.obj is not None:
            ctx.obj()
        return super().invoke(ctx)

    def in_own_words(self, message: str) -> str:
        """An error's message with the options of the command in the place of arguments of Python."""
        for option in self.params:
            if not isinstance(option, click.Option) or option.name is None:
                continue
            on, off = option.opts[-1], (option.secondary_opts or option.opts)[-1]
            for value, said in (("True", on), ("False", off)):
                message = re.sub(rf"(?<![\w'`.]){option.name}={value}\b", said, message)
            message = re.sub(rf"(?<![\w'`.-]){option.name}=(?=\")", f"{on} ", message)
            if "_" in option.name:
                message = re.sub(rf"(?<![\w'`.-]){option.name}(?![\w'`=.])", on, message)
                message = re.sub(rf"(?<![\w'`.-]){option.name}=(?=\S)", f"{on} ", message)
            message = re.sub(rf"(?<![\w'`.-]){option.name}=(?=\d)", f"{on} ", message)
        return message

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options first, then those that many commands have."""
        panels: dict[str, list[tuple[str, str]]] = {OWN: [], COMMIT: [], PLACE: []}
        for param in sorted(self.get_params(ctx), key=_order):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                panels[param.panel if isinstance(param, PanelOption) else OWN].append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on a line of its own, however long."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}refdelta {example}\n")
        super().format_epilog(ctx, formatter)


def worded(context: click.Context, message: str) -> str:
    """An error's message in the words of the command that was called.

    Args:
        context: of the group.
        message: the message.
    """
    running = context.meta.get(COMMAND)
    return running.command.in_own_words(message) if running is not None else message


def wants_json(context: click.Context) -> bool:
    """Whether the command that was called prints JSON for programs."""
    running = context.meta.get(COMMAND)
    return running is not None and bool(running.params.get("as_json"))


def first_sentence(command: click.Command) -> str:
    """The first sentence of a command's help, whole."""
    return command.get_short_help_str(limit=1_000)


class ShownGroup(click.Group):
    """A group whose help lists its commands with whole sentences."""

    command_class = ShownCommand

    def sections(self) -> Mapping[str, Mapping[str, str]]:
        """The sentences of the commands by name, in sections."""
        return {"Commands": {name: first_sentence(self.commands[name]) for name in sorted(self.commands)}}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the sections, with all sentences in one column."""
        sections = self.sections()
        width = max(len(name) for verbs in sections.values() for name in verbs)
        for title, verbs in sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", sentence) for name, sentence in verbs.items()])


class _Refdelta(ShownGroup):
    """The group of all commands, which shows and completes them without their modules."""

    def sections(self) -> Mapping[str, Mapping[str, str]]:
        return {title: {name: verb.sentence for name, verb in verbs.items()} for title, verbs in SECTIONS.items()}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """The commands and options that begin with a word."""
        from click.shell_completion import CompletionItem

        verbs = {name: sentence for verbs in self.sections().values() for name, sentence in verbs.items()}
        found = [CompletionItem(name, help=said) for name, said in sorted(verbs.items()) if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(
    cls=_Refdelta,
    commands=_Commands({name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="refdelta")
def app() -> None:
    """Delta Lake tables, read and written in pure Python.

    A table is a folder: a path, or a URI such as s3://bucket/flights, abfss://container@account.dfs.core.windows.net/x
    or file:///data/flights. The options of a store come from the environment (AWS_..., AZURE_...) or from
    --storage-option. With --json, every command prints one JSON document ('read' and 'changes': one JSON object a
    row).
    """
