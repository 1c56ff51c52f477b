"""A parent with a model's process, as Triton has it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server(folder: Path, port: int) -> Iterator[int]:
    """Run a parent that starts a model's process as Triton does and never waits for its end."""
    stub = folder / "triton_python_backend_stub"
    stub.symlink_to(sys.executable)
    model = folder / "tensorrt_llm_draft" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([{str(stub)!r}, {str(model)!r}, 'x'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", program, f"--http-port={port}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            yield child
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()
