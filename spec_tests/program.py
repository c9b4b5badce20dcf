"""A program of any language as a module under test: it answers calls on stdin and stdout.

`python -m spec_tests --command './my_program'` starts it. Each message is one line of JSON. The
program first writes what it offers:

    {"protocol": 1, "functions": ["hub_mask"], "dtypes": ["float64", "float32"], "tensors": "lists"}

Then it reads calls and writes one answer for each, with the id of the call:

    {"id": 1, "function": "hub_mask", "inputs": {"scores": {"float32": [1.0, 3.0]}, "radius": 1}}
    {"id": 1, "result": {"bool": [false, true]}}
    {"id": 2, "error": "value", "message": "radius must be at least 0"}

`spec_tests.json_values` defines the values, docs/program.md the rest.
"""

import atexit
import json
import os
import shlex
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from inspect import signature, unwrap
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import FrameType
from typing import IO, Any, get_args

import pytest

import reference
from spec_tests.json_values import (
    DTYPES,
    NotExpressible,
    integers_as_annotated_floats,
    read,
    written,
)
from spec_tests.limits import STRIKES, limit_memory_of_group, paused_alarm
from spec_tests.record_conversion import hints_of, is_record
from spec_tests.report.calls import tensors

PROTOCOL = 1
FORMS = ("lists", "base64")
START, RESTART = 60.0, 5.0
"""Seconds within which a program must write its first line; a restart has `RESTART` and ten times
the time of the first start, at most `START`."""
RESTARTS = 300.0
"""Seconds that all restarts may take, after which the remaining tests are left out."""
GRACE = 1.0
"""Seconds in which output that is already written arrives, and a killed process ends."""
LONGEST, KEPT, SHOWN = 2**26, 1000, 200
"""Bytes of the longest line that is read; lines of stderr, and bytes of each, that are kept;
characters of a line that an error message shows."""


class NotAProgram(ImportError):
    """A command that does not start, or whose first line does not follow the protocol."""


class ProgramEnded(Exception):
    """The program ended without an answer."""


class NoAnswer(Exception):
    """The program wrote a line that does not answer the call."""


class NotSupported(pytest.skip.Exception):
    """A call that is skipped: the module or program does not support it, or lacks its dtype."""


class LeftOut(pytest.skip.Exception):
    """A test that is not run, since a call or the restarts of the program take too long."""


class Program:
    """A program under test: its functions are attributes, as those of a module are.

    It is stopped after an interrupted call or a wrong answer; `restart_if_ended` starts it again.
    Its process group is ended as a whole: a launcher, and what the program itself started.

    Args:
        command: the command line, split as a shell splits it; there is no shell.

    Raises:
        NotAProgram: it does not start, or its first line is not as the protocol says.
    """

    def __init__(self, command: str):
        self.command, self.calls, self.failed_starts, self.restarts_took = command, 0, 0, 0.0
        began = time.monotonic()
        self.start(START)
        self.restart_limit = min(START, RESTART + 10 * (time.monotonic() - began))

    @property
    def title(self) -> str:
        """The name of the program's file, which a report uses."""
        files = [word for word in self.words if os.path.isfile(word)]
        return Path([*self.words[:1], *files][-1]).name

    def start(self, seconds: float) -> None:
        """Start the process in a group of its own, and read what it offers."""
        pipe = subprocess.PIPE
        try:
            self.words = shlex.split(self.command)
            self.process = subprocess.Popen(
                self.words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except (OSError, ValueError, IndexError) as error:
            raise NotAProgram(f"{self.command!r} does not start: {error}") from error
        assert self.process.stdout
        assert self.process.stderr
        self.lines, self.errors, self.answered = Queue[bytes](1), deque[bytes](maxlen=KEPT), False
        start_reading(self.process.stdout, LONGEST, self.lines.put)
        self.errors_end = start_reading(self.process.stderr, KEPT, self.errors.append)
        try:
            self.functions, self.dtypes, self.exact = read_offer(self.next_line(seconds))
        except (ProgramEnded, NoAnswer) as error:
            self.stop()
            raise NotAProgram(f"{self.command!r} offers nothing: {error}") from error
        limit_memory_of_group(self.process.pid)

    @paused_alarm()
    def restart_if_ended(self) -> None:
        """Start the process again if it has ended, outside the time limit of a call.

        Raises:
            ProgramEnded: it ended after an answer, with an error.
            NoAnswer: it does not start again; after the third time it is not tried any more.
            LeftOut: its restarts took more than `RESTARTS` seconds.
        """
        if self.process.poll() is None:
            return
        failed, words = self.answered and self.process.returncode, self.last_words()
        self.stop()
        if failed:
            raise ProgramEnded(f"{words}, after the answer before this call")
        if self.failed_starts >= STRIKES:
            raise NoAnswer(f"not started again: {STRIKES} starts failed")
        if self.restarts_took > RESTARTS:
            limit = f"{self.title} took more than {RESTARTS:g} s to start again and again"
            raise LeftOut(f"{limit}; a program that keeps running is tested in full")
        began = time.monotonic()
        try:
            self.start(self.restart_limit)
        except NotAProgram as error:
            self.failed_starts += 1
            raise NoAnswer(f"does not start again: {error}") from None
        finally:
            self.restarts_took += time.monotonic() - began

    def stop(self) -> None:
        """Kill the process and its group, and close its input; its readers end by themselves."""
        self.answered = False
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        assert self.process.stdin
        self.process.stdin.close()

    def __dir__(self) -> list[str]:
        return [*self.functions]

    def __getattr__(self, name: str) -> Any:
        """Return a function that calls the program."""
        if name.startswith("_") or name not in self.functions:
            raise AttributeError(f"{self.command!r} offers no {name}")
        if name not in reference.__all__ or is_record(name):
            return lambda *_, **__: None
        spec = unwrap(getattr(reference, name))

        @wraps(spec)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.answer(name, signature(spec).bind(*args, **kwargs).arguments)

        return call

    def answer(self, name: str, inputs: dict[str, Any]) -> Any:
        """Return the program's answer to a call.

        Raises:
            ValueError, TypeError: the program refuses the call, or JSON cannot express it.
            ProgramEnded, NoAnswer: it ended, or wrote something else.
        """
        try:
            given = {key: self.argument(name, key, value) for key, value in inputs.items()}
        except NotExpressible as error:
            raise TypeError(str(error)) from error
        self.calls += 1
        request = {"id": self.calls, "function": name, "inputs": given}
        try:
            try:
                line = self.reply_to(request)
            except ProgramEnded:
                if not self.answered or self.process.poll() != 0:
                    raise
                self.restart_if_ended()  # it had ended after its last answer, without an error
                line = self.reply_to(request)
            self.answered = True
            return self.outcome(name, line)
        except (ValueError, TypeError, NotSupported):
            raise
        except BaseException:  # also after an alarm: the next line would be a late answer
            self.stop()
            raise

    def argument(self, name: str, key: str, value: Any) -> Any:
        """Return an argument as JSON."""
        kinds = {hint := hints_of(name).get(key), *get_args(hint)}
        if isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds:
            raise NotExpressible(f"{key} must be an integer, got {value}, which JSON writes as one")
        unknown = [t.dtype for t in tensors(value) if t.dtype.is_floating_point]
        if any(dtype not in self.dtypes for dtype in unknown):
            raise NotSupported(f"{self.title} does not take {unknown[0]}")
        return written(value, self.exact)

    def reply_to(self, request: dict[str, Any]) -> bytes:
        """Write one line to the program, past the buffer, and return the line that it answers."""
        assert self.process.stdin
        rest = memoryview(json.dumps(request, allow_nan=False).encode() + b"\n")
        try:
            while rest:
                rest = rest[os.write(self.process.stdin.fileno(), rest) :]
        except OSError:
            raise ProgramEnded(self.last_words()) from None
        return self.next_line()

    def next_line(self, seconds: float = float("inf")) -> bytes:
        """Return the next line that the program writes."""
        until = time.monotonic() + seconds
        while True:
            ended = self.process.poll() is not None
            try:
                line = self.lines.get(timeout=min(GRACE, seconds))
                break
            except Empty:
                if ended:
                    raise ProgramEnded(self.last_words()) from None
                if time.monotonic() > until:
                    raise NoAnswer(f"no line within {seconds:g} s") from None
        if line.endswith(b"\n"):
            return line
        if len(line) == LONGEST:
            raise NoAnswer(f"a line must have less than {LONGEST} bytes, got {shown(line)}")
        raise ProgramEnded(self.last_words())

    def last_words(self) -> str:
        """Return the exit status and the last line of stderr, if possible one that says error."""
        try:
            status = self.process.wait(GRACE)
            how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        except subprocess.TimeoutExpired:
            how = "closed its output"
        self.errors_end.join(GRACE)
        said = [text for line in [*self.errors] if (text := line.decode(errors="replace").strip())]
        named = [line for line in said if "error" in line.lower()] or said
        return f"{how}: {printable(named[-1][:SHOWN])}" if named else how

    def outcome(self, name: str, line: bytes) -> Any:
        """Return the result in an answer, or raise its error."""
        answer = parsed(line)
        if answer.get("id") != self.calls:
            raise NoAnswer(f"id must be {self.calls}, got {shown(line)}")
        if "error" in answer:
            message = printable(str(answer.get("message", ""))[:KEPT])
            if answer["error"] == "unsupported":
                raise NotSupported(message or f"{self.title} does not support this call")
            if answer["error"] not in ("value", "type"):
                kinds = "'value', 'type' or 'unsupported'"
                raise NoAnswer(f"error must be {kinds}, got {shown(line)}")
            raise (ValueError if answer["error"] == "value" else TypeError)(message)
        if "result" not in answer:
            raise NoAnswer(f"an answer has a result or an error, got {shown(line)}")
        try:
            result = read(answer["result"])
            if isinstance(result, dict):
                raise ValueError(f"there is no value {{{next(iter(result), '')!r}: ...}}")
            return integers_as_annotated_floats(result, hints_of(name).get("return"))
        except Exception as error:
            why = printable(str(error)[:SHOWN])
            raise NoAnswer(f"no value: {why}, got {shown(line)}") from error

    def snippet(self, name: str, inputs: dict[str, Any]) -> str:
        """Return a line for a shell that sends one call."""
        given = {key: self.argument(name, key, value) for key, value in inputs.items()}
        line = json.dumps({"id": 1, "function": name, "inputs": given})
        return f"printf '%s\\n' {shlex.quote(line)} | {self.command}\n"


def start_reading(pipe: IO[bytes], longest: int, put: Callable[[bytes], Any]) -> Thread:
    """Start passing on each line of a pipe, cut to the longest length, and an empty one at its end.

    Only this thread closes the pipe: a process that left the group may keep it open.
    """

    def read_lines() -> None:
        with pipe:
            while line := pipe.readline(longest):
                put(line)
        put(b"")

    thread = Thread(target=read_lines, daemon=True)
    thread.start()
    return thread


def parsed(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line, or an empty one for another value."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise NoAnswer(f"a line must be JSON, got {shown(line)}") from None
    return value if isinstance(value, dict) else {}


def shown(line: bytes) -> str:
    """Return the start of a line, quoted, without a control character."""
    return repr(line[: 4 * SHOWN].decode(errors="replace").rstrip()[:SHOWN])


def printable(text: str) -> str:
    """Return a text with control, bidirectional and other invisible characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def read_offer(line: bytes) -> tuple[frozenset[str], tuple[Any, ...], bool]:
    """Return the functions and dtypes that a first line offers, and whether tensors are base64.

    Raises:
        NoAnswer: the line is not as the protocol says.
    """
    default = {"functions": None, "dtypes": ["float64", "float32"], "tensors": FORMS[0]}
    offer: dict[str, Any] = default | parsed(line)
    functions, dtypes, form = (offer[key] for key in default)
    words = [
        isinstance(x, list) and all(isinstance(y, str) for y in x) for x in (functions, dtypes)
    ]
    for right, what in (
        (offer.get("protocol") == PROTOCOL, f"protocol {PROTOCOL}"),
        (words[0], "functions, a list of names"),
        (words[1] and {*dtypes} <= {*DTYPES}, f"dtypes, a list from {', '.join(DTYPES)}"),
        (form in FORMS, "tensors 'lists' or 'base64'"),
    ):
        if not right:
            raise NoAnswer(f"the first line must have {what}, got {shown(line)}")
    return frozenset(functions), tuple(DTYPES[name] for name in dtypes), form == FORMS[1]


@cache
def started(command: str) -> Program:
    """Return the program of a command, started at the first call; it ends with this process."""
    program = Program(command)
    atexit.register(program.stop)
    for name in ("SIGTERM", "SIGHUP"):
        with suppress(AttributeError, ValueError):  # not on Windows, not in another thread
            stop_at_signal(program, getattr(signal, name))
    return program


def stop_at_signal(program: Program, number: int) -> None:
    """Stop a program before a signal does what it did so far."""
    before = signal.getsignal(number) or signal.SIG_DFL

    def stop(number: int, _: FrameType | None) -> None:
        program.stop()
        signal.signal(number, before)
        os.kill(os.getpid(), number)

    signal.signal(number, stop)


def __getattr__(command: str) -> Program:
    """Return a program: `--impl 'spec_tests.program:./my_program'` tests it."""
    if command.startswith("__"):
        raise AttributeError(command)
    return started(command)
