"""The command `fhrd`. It runs in the native module, as the program does that is built from the same sources."""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__" or os.path.basename(sys.argv[0]) == "fhrd":
    # A signal while the module is loaded ends the command as it ends a program, without a traceback. The engine listens
    # to signals itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from ._engine import run_command


def main() -> None:
    """Runs the command with the arguments of this process, and ends the process with its exit code."""
    run_command(sys.argv[1:], _again())


def _again() -> list[str]:
    """The words that start this command again, from any directory."""
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) == "fhrd" and os.path.isfile(script) and os.access(script, os.X_OK):
        return [script]
    # A package of that name in the working directory must not be taken for this one.
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    # Started by a relative path, Python says how it was found, through directories that may be gone later.
    python = os.path.abspath(sys.executable) if sys.executable else "python3"
    return [python, *safe, "-m", "fhrd"]


if __name__ == "__main__":
    main()
