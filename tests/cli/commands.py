"""Run the command line as a user would."""

import os
import subprocess
import sys


def weft(*arguments, code=0, before="", terminal=False, **environment):
    """Run ``weft`` with arguments; return what it printed, as (out, err).

    `before` is Python that runs first; on a `terminal` both streams are one.
    """
    program = f"{before}\nimport sys\nsys.argv[0] = 'weft'\nfrom weft.cli import main\nmain()\n"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "100", **environment}
    if terminal:
        return _on_terminal(command, {**env, "TERM": "xterm"}, code)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          env=env)  # fmt: skip
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def _on_terminal(command, env, code):
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen(command, stdout=follower, stderr=follower, env=env)
    os.close(follower)
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(leader)
    text = b"".join(parts).decode()
    assert process.wait() == code, text
    return text, ""
