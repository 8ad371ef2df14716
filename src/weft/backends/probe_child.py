"""The program that asks one driver in a process of its own; `weft.backends.probing` starts it.

It is run as a file, by ``python -I``, and imports nothing of Weft: what a driver needs is loaded by
the function that is asked, and nothing else takes time. The folder that it is given holds
``request`` (JSON) and receives ``began`` and ``returned``, by which a driver that ends the process
is told from other failures, and ``answer`` (JSON). Both standard streams are the driver's alone.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import sys
from typing import Any

__all__ = ["main"]

_GRACE = 5.0  # seconds that the watchdog waits longer than the parent


def main(folder: str) -> None:
    """Ask the function that the folder's request names, and leave its answer there.

    The process ends without the driver's own clean-up, which may hang or crash as well.

    Parameters
    ----------
    folder : str
        A folder that only the parent knows.
    """
    with open(os.path.join(folder, "request"), encoding="utf-8") as file:
        request = json.load(file)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with open(os.devnull, "w") as nowhere:
        # Ends the process even if the parent is gone and the driver holds the interpreter's lock.
        faulthandler.dump_traceback_later(request["seconds"] + _GRACE, exit=True, file=nowhere)
        sys.path[:] = request["path"]
        _write(folder, "began", "")
        reply = _reply(request["function"])
        _write(folder, "returned", "")
        _write(folder, "answer", reply)
        os._exit(0)


def _reply(function: str) -> str:
    """Return what a function answers, or raises, as JSON."""
    try:
        module, _, name = function.partition(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return json.dumps({"answer": found()})
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def _write(folder: str, name: str, text: str) -> None:
    """Write a file whole or not at all."""
    made = os.path.join(folder, f"{name}.{os.getpid()}")
    with open(made, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(made, os.path.join(folder, name))


if __name__ == "__main__":
    main(sys.argv[1])
