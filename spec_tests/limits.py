"""What a module under test may take: seconds for a call, and memory.

A call that has not ended by then is interrupted, where there are alarms: not on Windows, and in the
main thread alone. The seconds are those of the processor, since others may share it, unless the
call waits for something. After the first such call a function has a tenth of the time, the others
have half, and after its third it is not called again, so that a run ends. Memory is limited on
Linux: a call that asks for more than any draw needs fails, and takes nothing else along.
"""

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 10.0
"""What a call may take, unless `--call-limit` says otherwise; the reference's take less than 5."""
WAITS = 0.02
"""A call that has had less of the processor than this part of its time waits for something."""
STRIKES = 3
"""After so many calls that do not end a function is not called again."""
MEMORY = 2**31
"""Bytes that a test may take beside what there is; the stack of every thread counts."""


class DoesNotEnd(Exception):
    """A call was still running when its time was up."""


class Alarm(BaseException):
    """Time is up: no `except Exception` on the way holds it."""


class Limit:
    """The limit of the calls of one module, and how often each of its functions overran it."""

    def __init__(self, seconds: float):
        self.seconds, self.strikes, self.inside = seconds, Counter[str](), False

    @property
    def given_up(self) -> frozenset[str]:
        """The functions that are not called again."""
        return frozenset(name for name, times in self.strikes.items() if times >= STRIKES)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Hold one call of a function to the limit; a call within another has the other's time.

        Raises:
            DoesNotEnd: it was interrupted, or is not made any more.
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
    """Set an alarm, and return whether there is one here that nobody else has set."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        return False
    here, began = time.thread_time(), time.monotonic()

    def ring(*_: object) -> None:
        """End what is running, unless it has had no time: then the alarm is set again."""
        had = time.thread_time() - here
        left = seconds - had
        if left <= 0.01 or had < WAITS * (time.monotonic() - began):
            raise Alarm
        signal.setitimer(signal.ITIMER_REAL, left)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return True


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let the process take no more than `MEMORY` beside what it has, where that can be told."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # of data: what the limit counts
    most = pages * resource.getpagesize() + MEMORY
    if before[0] == resource.RLIM_INFINITY or before[0] > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
