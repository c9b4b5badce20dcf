"""Time and memory limits for the calls of a module under test.

A call that exceeds its time is interrupted by an alarm, in the main thread only and not on Windows.
The limit is on processor time, since other processes may share the machine, except for a call that
waits. After a function's first such call its limit is a tenth, and that of other functions half.
After its third the function is not called again, so that a run ends. Memory is limited on Linux. A
call that requests more than any example needs fails, and the process survives.
"""

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 10.0
"""Default of `--call-limit`; calls of the reference take less than 5 seconds."""
WAITS = 0.02
"""A call counts as waiting if its processor time is below this part of its elapsed time."""
STRIKES = 3
"""The number of interrupted calls after which a function is not called again."""
MEMORY = 2**31
"""Bytes that a test may allocate beyond those in use; the stack of every thread counts."""


class DoesNotEnd(Exception):
    """A call exceeded its time limit."""


class Alarm(BaseException):
    """The alarm's exception: no `except Exception` of the module under test catches it."""


class Limit:
    """The time limit of one module's calls, and how often each function exceeded it."""

    def __init__(self, seconds: float):
        self.seconds, self.strikes, self.inside = seconds, Counter[str](), False

    @property
    def given_up(self) -> frozenset[str]:
        """The functions that are not called again."""
        return frozenset(name for name, times in self.strikes.items() if times >= STRIKES)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Limit the time of one call of a function; a nested call counts as part of the outer one.

        Raises:
            DoesNotEnd: the call was interrupted, or the function is not called again.
        """
        if name in self.given_up:
            raise DoesNotEnd("not called again")
        part = 10 if self.strikes[name] else 2 if self.strikes.total() else 1
        seconds = self.seconds / part
        if self.inside or not seconds or not set_alarm(seconds):
            yield
            return
        self.inside = True
        try:
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            self.strikes[name] += 1
            raise DoesNotEnd(f"still running after {seconds:g} s") from None
        finally:
            self.inside = False


def set_alarm(seconds: float) -> bool:
    """Set an alarm and return True; return False where alarms do not work or another one is set."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        return False
    here, began = time.thread_time(), time.monotonic()

    def ring(*_: object) -> None:
        """Interrupt the call, or set the alarm again if it has had too little processor time."""
        had = time.thread_time() - here
        left = seconds - had
        if left <= 0.01 or had < WAITS * (time.monotonic() - began):
            raise Alarm
        signal.setitimer(signal.ITIMER_REAL, left)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return True


@contextmanager
def paused_alarm() -> Iterator[None]:
    """Leave what runs here out of the time limit of the running call, if it has one."""
    left = signal.setitimer(signal.ITIMER_REAL, 0)[0] if hasattr(signal, "setitimer") else 0
    yield
    if left:
        signal.setitimer(signal.ITIMER_REAL, left)


def limit_memory_of_group(group: int) -> None:
    """Limit each process of a group to `MEMORY` bytes beyond those in use, on Linux."""
    if sys.platform.startswith("linux"):
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ends meanwhile
                if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                    limit_memory_of(int(folder.name))


def limit_memory_of(process: int) -> tuple[int, int]:
    """Limit a process to `MEMORY` bytes beyond those in use, and return its limits before."""
    import resource

    pages = int(Path(f"/proc/{process}/statm").read_text().split()[5])  # as RLIMIT_DATA counts
    most = pages * resource.getpagesize() + MEMORY
    soft, hard = resource.prlimit(process, resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.prlimit(process, resource.RLIMIT_DATA, (most, hard))
    return soft, hard


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit this process to `MEMORY` bytes beyond those in use, on Linux."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = limit_memory_of(os.getpid())
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
