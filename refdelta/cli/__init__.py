"""The command ``refdelta``: text for people, ``--json`` for programs.

Every failure is one clear line on standard error and exit status 1, never a traceback; ``REFDELTA_DEBUG=1`` shows that.
Ctrl-C is one line, too, and exit status 130. This module is small and imports nothing before :func:`main` runs: until
then Ctrl-C finds Python's own handler.
"""

TYPE_CHECKING = False  # the import of typing would take longer than that of this module
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: those of the command line without the program's name. None for ``sys.argv[1:]`` of a process that
            ends with this command: Ctrl-C is then handled until the process has ended.

    Returns:
        0, or 1 after an error, which has been printed; 130 after Ctrl-C.
    """
    try:
        from refdelta.cli import program

        return program.run_to_the_end() if arguments is None else program.run(arguments)
    except KeyboardInterrupt:
        from refdelta.cli import program

        return program.interrupted()
