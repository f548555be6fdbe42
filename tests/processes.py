"""Processes that a test has to look for because they are not its own children."""

import time
from pathlib import Path


def is_running(process: int, patience_s: float = 0.5) -> bool:
    """Whether a process is still there after a moment, and no corpse that nobody has fetched."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.02)
    return True
