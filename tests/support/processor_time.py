"""The processor time of a process, which other programs on the machine do not change."""

from contextlib import suppress
from pathlib import Path


def processor_seconds(process: int) -> float:
    """Return the processor time of all threads of a process that have not ended."""
    nanoseconds = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread may end between the listing and the reading.
        with suppress(FileNotFoundError, ProcessLookupError):
            nanoseconds += int((task / "schedstat").read_text("ascii").split()[0])
    return nanoseconds / 1e9
