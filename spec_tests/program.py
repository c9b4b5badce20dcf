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
import shlex
import subprocess
import tempfile
from functools import cache, wraps
from inspect import signature, unwrap
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any, get_args, get_type_hints

import pytest

import reference
from spec_tests.json_values import (
    DTYPES,
    NotExpressible,
    integers_as_annotated_floats,
    read,
    written,
)
from spec_tests.record_conversion import is_record
from spec_tests.report.calls import tensors

PROTOCOL = 1
FORMS = ("lists", "base64")
START = 60.0
"""Seconds within which a program must write its first line."""
SHOWN = 200
"""Characters of a line that an error message shows."""


class NotAProgram(ImportError):
    """A command that does not start, or whose first line does not follow the protocol."""


class ProgramEnded(Exception):
    """The program ended without an answer."""


class NoAnswer(Exception):
    """The program wrote a line that does not answer the call."""


class NotSupported(pytest.skip.Exception):
    """A call that is skipped: the module or program does not support it, or lacks its dtype."""


class Program:
    """A program under test: its functions are attributes, as those of a module are.

    It is stopped after an interrupted call or a wrong answer; `restart_if_ended` starts it again.

    Args:
        command: the command line, split as a shell splits it; there is no shell.

    Raises:
        NotAProgram: it does not start, or its first line is not as the protocol says.
    """

    def __init__(self, command: str):
        self.command, self.words = command, shlex.split(command)
        self.calls = 0
        self.start()

    @property
    def title(self) -> str:
        """The name of the program's file, which a report uses."""
        files = [word for word in self.words if Path(word).is_file()]
        return Path([*self.words[:1], *files][-1]).name

    def start(self) -> None:
        """Start the process, and read what it offers."""
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
            )
        except OSError as error:
            raise NotAProgram(f"{self.command!r} does not start: {error}") from error
        self.lines: Queue[bytes] = Queue()
        Thread(target=forward_lines, args=(self.process, self.lines), daemon=True).start()
        try:
            offer = parsed(self.next_line(START))
        except (ProgramEnded, NoAnswer) as error:
            self.stop()
            raise NotAProgram(f"{self.command!r} offers nothing: {error}") from error
        self.functions, self.dtypes, self.exact = read_offer(self.command, offer)

    def restart_if_ended(self) -> None:
        """Start the process again if it has ended, outside the time limit of a call."""
        if self.process.poll() is not None:
            self.start()

    def stop(self) -> None:
        """Kill the process, and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            assert pipe
            pipe.close()

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
            self.send(request)
            answer = parsed(self.next_line())
            return self.outcome(name, answer)
        except (ValueError, TypeError, NotSupported):
            raise
        except BaseException:  # also after an alarm: the next line would be a late answer
            self.stop()
            raise

    def argument(self, name: str, key: str, value: Any) -> Any:
        """Return an argument as JSON."""
        if isinstance(value, float) and value.is_integer() and takes_only_integers(name, key):
            raise NotExpressible(f"{key} must be an integer, got {value}, which JSON writes as one")
        unknown = [t.dtype for t in tensors(value) if t.dtype.is_floating_point]
        if any(dtype not in self.dtypes for dtype in unknown):
            raise NotSupported(f"{self.title} does not take {unknown[0]}")
        return written(value, self.exact)

    def send(self, request: dict[str, Any]) -> None:
        """Write one line to the program."""
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request, allow_nan=False).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise ProgramEnded(self.last_words()) from None

    def next_line(self, seconds: float | None = None) -> bytes:
        """Return the next line that the program writes."""
        try:
            line = self.lines.get(timeout=seconds)
        except Empty:
            raise NoAnswer(f"no line within {seconds:g} s") from None
        if not line.endswith(b"\n"):
            raise ProgramEnded(self.last_words())
        return line

    def last_words(self) -> str:
        """Return the exit status and the last line of stderr, if possible one that says error."""
        status = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        named = [line for line in said if "error" in line.lower()] or said
        return f"{how}: {named[-1][:SHOWN]}" if named else how

    def outcome(self, name: str, answer: Any) -> Any:
        """Return the result in an answer, or raise its error."""
        if not isinstance(answer, dict) or answer.get("id") != self.calls:
            raise NoAnswer(f"id must be {self.calls}, got {json.dumps(answer)[:SHOWN]}")
        if "error" in answer:
            message = str(answer.get("message", ""))
            if answer["error"] == "unsupported":
                raise NotSupported(message or f"{self.title} does not support this call")
            if answer["error"] not in ("value", "type"):
                raise NoAnswer(
                    f"error must be 'value', 'type' or 'unsupported', got {answer['error']!r}"
                )
            raise (ValueError if answer["error"] == "value" else TypeError)(message)
        if "result" not in answer:
            raise NoAnswer(f"an answer has a result or an error, got {json.dumps(answer)[:SHOWN]}")
        try:
            result = read(answer["result"])
            if isinstance(result, dict):
                raise ValueError(f"there is no value {{{next(iter(result), '')!r}: ...}}")
            return integers_as_annotated_floats(result, hints_of(name).get("return"))
        except Exception as error:
            raise NoAnswer(f"no value: {json.dumps(answer['result'])[:SHOWN]}: {error}") from error

    def snippet(self, name: str, inputs: dict[str, Any]) -> str:
        """Return a line for a shell that sends one call."""
        given = {key: self.argument(name, key, value) for key, value in inputs.items()}
        line = json.dumps({"id": 1, "function": name, "inputs": given})
        return f"printf '%s\\n' {shlex.quote(line)} | {self.command}\n"


def forward_lines(process: subprocess.Popen[bytes], lines: Queue[bytes]) -> None:
    """Put each line of a process into a queue, and at its end an empty line."""
    assert process.stdout
    for line in process.stdout:
        lines.put(line)
    lines.put(b"")


def parsed(line: bytes) -> Any:
    """Return the JSON value of a line."""
    try:
        return json.loads(line)
    except ValueError:
        text = line.decode(errors="replace").rstrip()
        raise NoAnswer(f"a line must be JSON, got {text[:SHOWN]!r}") from None


def read_offer(command: str, offer: Any) -> tuple[frozenset[str], tuple[Any, ...], bool]:
    """Return the functions and dtypes that a program offers, and whether tensors are base64.

    Raises:
        NotAProgram: its first line is not as the protocol says.
    """
    offer = offer if isinstance(offer, dict) else {}
    known = f"first line of {command!r} must have"
    if offer.get("protocol") != PROTOCOL:
        raise NotAProgram(f"{known} protocol {PROTOCOL}, got {offer.get('protocol')!r}")
    functions, dtypes = offer.get("functions"), offer.get("dtypes", ["float64", "float32"])
    if not isinstance(functions, list) or not all(isinstance(name, str) for name in functions):
        raise NotAProgram(f"{known} functions, a list of names, got {functions!r}")
    if not isinstance(dtypes, list) or not {*dtypes} <= DTYPES.keys():
        raise NotAProgram(f"{known} dtypes, a list from {', '.join(DTYPES)}, got {dtypes!r}")
    if (form := offer.get("tensors", FORMS[0])) not in FORMS:
        raise NotAProgram(f"{known} tensors 'lists' or 'base64', got {form!r}")
    return frozenset(functions), tuple(DTYPES[name] for name in dtypes), form == FORMS[1]


@cache
def hints_of(name: str) -> dict[str, Any]:
    """Return the annotations of a public function, without their marks."""
    return get_type_hints(unwrap(getattr(reference, name)))


def takes_only_integers(name: str, key: str) -> bool:
    """Whether an argument may be an integer but no other number."""
    hint = hints_of(name).get(key)
    kinds = (hint, *get_args(hint))
    return int in kinds and float not in kinds


@cache
def started(command: str) -> Program:
    """Return the program of a command, started at the first call."""
    program = Program(command)
    atexit.register(program.stop)
    return program


def __getattr__(command: str) -> Program:
    """Return a program: `--impl 'spec_tests.program:./my_program'` tests it."""
    if command.startswith("__"):
        raise AttributeError(command)
    return started(command)
