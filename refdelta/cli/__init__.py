"""The command ``refdelta``: text for people, ``--json`` for programs.

Every failure is one clear line on standard error and exit status 1, never a traceback; ``REFDELTA_DEBUG=1`` shows that.
This module alone stays importable without the ``cli`` extra, so that it can say what to install.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

from refdelta.errors import DeltaError, printable
from refdelta_storage import StorageError

_COMPLETE = "_REFDELTA_COMPLETE"
"""The variable by which a shell asks for completions, as click names it."""

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: those of the command line without the program's name, ``sys.argv[1:]`` unless said.

    Returns:
        0, or 1 after an error, which has been printed; 130 after Ctrl-C.
    """
    missing = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        return _fail(f"the command line needs {' and '.join(missing)}; install with: pip install 'refdelta[cli]'")
    import click

    from refdelta.cli.app import app
    from refdelta.cli.group import worded

    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "refdelta", _COMPLETE, instruction)
    context = click.Context(app)  # until the arguments are read
    try:
        # Not app.main(): it would end the process where it sees a broken pipe.
        given = list(sys.argv[1:] if arguments is None else arguments)
        with warnings.catch_warnings(), app.make_context("refdelta", given) as context:
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_where: _say(str(message))
            app.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", _INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "refdelta"
        return _fail(f"{error.format_message().rstrip('.')} (see {path} --help)")
    except click.ClickException as error:
        return _fail(error.format_message())
    except BrokenPipeError:
        _drop_output()
        return 0
    except (DeltaError, StorageError) as error:
        return _fail(worded(context, str(error) or type(error).__name__))
    except OSError as error:  # our own files and streams, such as a full disk under `> file`
        if error.filename is None:
            _drop_output()
        return _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user never sees a traceback unasked
        return _fail(f"unexpected {type(error).__name__}: {error} (REFDELTA_DEBUG=1 shows where)")
    return 0


def _fail(message: str, status: int = 1) -> int:
    if os.environ.get("REFDELTA_DEBUG") and sys.exc_info()[0] is not None:
        traceback.print_exc()
    _say(message)
    return status


def _say(message: str) -> None:
    line = printable(" ".join(message.split()))
    colored = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    sys.stderr.write(f"{_RED if colored else ''}refdelta:{_PLAIN if colored else ''} {line}\n")


def _drop_output() -> None:
    """Drop buffered output that cannot be written (``| head``, a full disk), so that it does not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
