"""One command from its arguments to its exit status: errors as one line, and Ctrl-C at any moment."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in :mod:`refdelta.cli`
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

    import click

_COMPLETE = "_REFDELTA_COMPLETE"
"""The variable by which a shell asks for completions, as click names it."""

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_TRANSACTION = "refdelta.transaction.transaction"
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


def run_to_the_end() -> int:
    """Run the command of the process, which ends with it, and return its exit status."""
    interrupts = Interrupts()
    try:
        status = run(sys.argv[1:], interrupts)
        interrupts.end_at_once()
    except KeyboardInterrupt:
        status = interrupted()
        interrupts.end_silently()
        _drop_output()
    return status


def interrupted() -> int:
    """Say that the command was interrupted, and return its exit status."""
    _show_traceback()
    _write(_line("interrupted"))
    return _INTERRUPTED


def run(arguments: Sequence[str], interrupts: Interrupts | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: those of the command line.
        interrupts: the handling of Ctrl-C; None if the process does not end with the command.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    begun = None if interrupts is None else interrupts.undo_first
    context: click.Context | None = None
    try:
        import warnings

        import click

        from refdelta.cli.app import app

        if instruction := os.environ.get(_COMPLETE):
            from click.shell_completion import shell_complete

            return shell_complete(app, {}, "refdelta", _COMPLETE, instruction)
        # Not app.main(): it would end the process where it sees a broken pipe.
        with warnings.catch_warnings(), app.make_context("refdelta", [*arguments], obj=begun) as context:
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_where: _say(str(message))
            app.invoke(context)
        if sys.stdout is not None:  # the caller may have closed it
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        return _fail(_not_installed(error))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
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
    except Exception as error:
        if interrupts is not None and interrupts.came:  # a library has made another error of it
            raise KeyboardInterrupt from error
        _print_conflict(error, context)
        return _fail(_worded(error, context))
    return 0


def _print_conflict(error: Exception, context: click.Context | None) -> None:
    """Print a conflict as JSON for ``refdelta why``, if the command prints JSON."""
    from refdelta.cli.app import wants_json
    from refdelta.errors import ConcurrentModificationError

    if isinstance(error, ConcurrentModificationError) and context is not None and wants_json(context):
        from refdelta.cli.render import echo_json

        echo_json({"error": type(error).__name__, "message": str(error), "conflict": error.conflict.as_dict()})


def _worded(error: Exception, context: click.Context | None) -> str:
    """The message of an error of the engine or of the system."""
    from refdelta.cli.app import worded
    from refdelta.errors import DeltaError
    from refdelta_storage import StorageError

    if isinstance(error, (DeltaError, StorageError)):
        message = str(error) or type(error).__name__
        return message if context is None else worded(context, message)
    if isinstance(error, OSError):  # our own files and streams, such as a full disk under `> file`
        if error.filename is None:
            _drop_output()
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    return f"unexpected {type(error).__name__}: {error} (REFDELTA_DEBUG=1 shows where)"


def _not_installed(error: ModuleNotFoundError) -> str:
    """The message for a package of the extra ``cli`` that is not there; for another one, that of any error."""
    from importlib.util import find_spec

    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if str(error.name).partition(".")[0] not in missing:
        return _worded(error, None)
    return f"the command line needs {' and '.join(missing)}; install with: pip install 'refdelta[cli]'"


class Interrupts:
    """The handling of Ctrl-C in a process of one command. A process that ignores Ctrl-C, such as one that a script
    starts in the background, goes on to do so.

    Attributes:
        came: whether Ctrl-C was pressed while the command was at work.
    """

    def __init__(self) -> None:
        import atexit
        import signal

        self.came = False
        self._heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self.end_at_once()
        if self._heeded:
            sys.unraisablehook = _end_if_lost
            # The last of these calls. After it Python restores all other handlers, and Ctrl-C would kill the process.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def end_at_once(self) -> None:
        """Let Ctrl-C end the process: modules are imported, or the interpreter ends, and there is nothing to undo."""
        self._handle(_end)

    def end_silently(self) -> None:
        """The same, after the message."""
        self._handle(lambda *_: os._exit(_INTERRUPTED))

    def undo_first(self) -> None:
        """Let Ctrl-C end the command, which undoes what is not committed. A second Ctrl-C ends the process at once."""
        self._handle(self._raise)

    def _raise(self, _number: int, frame: FrameType | None) -> None:
        if _TRANSACTION not in sys.modules and _imports(frame):
            _end()  # nothing is written yet, and some modules would swallow an error
        self.came = True
        self.end_at_once()
        raise KeyboardInterrupt

    def _handle(self, handler: Callable[..., None]) -> None:
        import signal

        if self._heeded:
            signal.signal(signal.SIGINT, handler)


def _imports(frame: FrameType | None) -> bool:
    """Whether a frame, or one that called it, imports a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end(*_: object) -> None:
    """End the process with the message. Python's streams may be in use; what they hold is dropped."""
    os.write(2, _line("interrupted").encode())
    os._exit(_INTERRUPTED)


def _end_if_lost(error: Any) -> None:
    """End the process if Ctrl-C came where Python cannot raise an error, such as in a callback of the import."""
    if error.exc_type is not None and issubclass(error.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(error)


def _fail(message: str) -> int:
    _show_traceback()
    _say(message)
    return 1


def _show_traceback() -> None:
    if os.environ.get("REFDELTA_DEBUG") and sys.exc_info()[0] is not None:
        import traceback

        traceback.print_exc()


def _say(message: str) -> None:
    from refdelta.errors import printable

    _write(_line(printable(" ".join(message.split()))))


def _write(line: str) -> None:
    if sys.stderr is not None:  # the caller may have closed it
        sys.stderr.write(line)


def _line(message: str) -> str:
    colored = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return f"{_RED if colored else ''}refdelta:{_PLAIN if colored else ''} {message}\n"


def _drop_output() -> None:
    """Drop buffered output that cannot be written (``| head``, a full disk), so that it does not fail again at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
