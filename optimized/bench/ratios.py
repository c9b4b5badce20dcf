"""Ratios on a CPU: `python -m optimized.bench ratios [NAME ...]`.

Each function is measured against the plain way to it. `--against library` takes PyTorch's attention
in full precision and the libraries that are installed, `--against paper` the rows of `cases`. Both
sides are called in turns in one process on one thread, and the ratio is the median of the pairs, by
process time. A row is printed when it is measured, and written to docs/ratios.csv. A row of the
same code on the same processor is not measured again, except with `--anew`. Functions must first
pass their agreement tests. No timing is ever asserted.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import StringIO
from itertools import chain, product
from pathlib import Path
from statistics import median
from time import process_time

import torch

import optimized
import reference
from optimized._atomic_files import write_atomically
from optimized.bench.agreement import failing_tests
from optimized.bench.cases import CASES
from optimized.bench.library import Call, rivals
from optimized.bench.report import ROOT, commit, digest, installed, markdown, processor, today
from optimized.bench.straightforward import ROWS
from optimized.bench.straightforward.rows import layer

FILE, PAGE = ROOT / "docs/ratios.csv", ROOT / "docs/performance.md"
SIZES, DTYPES = (1024, 4096, 16384), (torch.float32, torch.bfloat16)
PLAIN = "straightforward"
SECONDS, PAIRS = 0.25, 41
"""How long a row is measured, and the most pairs."""
CODE = (
    *("reference", "optimized/vector", "optimized/bench/straightforward"),
    "optimized/_dispatch.py",
)
"""What is hashed: the measured code and the plain ways."""
COLUMNS = (
    *("function", "against", "tokens", "dtype", "ratio", "ours ms", "theirs ms", "pairs"),
    *("shape", "processor", "threads", "versions", "commit", "code", "date"),
)
Line = dict[str, str]
Key = tuple[str, ...]
Row = tuple[Line, Callable[[], tuple[Call, Call]]]
"""What identifies a row, and what makes our call and theirs."""


def plain_rows() -> Iterator[Row]:
    """Yield the rows against the plain ways, small sizes first."""
    for tokens, name, dtype in product(SIZES, ROWS, DTYPES):
        yield sized(name, PLAIN, tokens, dtype), partial(plain_sides, name, tokens, dtype)


def plain_sides(name: str, tokens: int, dtype: torch.dtype) -> tuple[Call, Call]:
    """Return a call of a function and of the plain way to it."""
    inputs = ROWS[name].inputs(tokens, dtype)
    return partial(getattr(optimized, name), **inputs), partial(ROWS[name].plain, **inputs)


def library_rows() -> Iterator[Row]:
    """Yield the rows against PyTorch's attention and the libraries that are installed."""
    for tokens, ((name, against), rival), dtype in product(SIZES, rivals().items(), DTYPES):
        line, how = sized(name, against, tokens, dtype), (tokens, dtype)
        yield line, lambda n=name, to=rival, how=how: to(ROWS[n].inputs(*how), layer(*how))


def paper_rows() -> Iterator[Row]:
    """Yield the rows that have shapes of their own."""
    for case in CASES:
        line = dict(function=case.name, against=case.against, tokens="", dtype="", shape=case.shape)
        yield line, case.sides


KINDS = dict(plain=plain_rows, library=library_rows, paper=paper_rows)


def sized(name: str, against: str, tokens: int, dtype: torch.dtype) -> Line:
    """Return what identifies the row of a function at a size."""
    line = dict(function=name, against=against, tokens=str(tokens), dtype=str(dtype)[6:])
    return line | dict(shape=ROWS[name].shape.format(tokens))


def timed(call: Call) -> float:
    """Return the process time of a call in seconds."""
    start = process_time()
    call()
    return process_time() - start


def paired(ours: Call, theirs: Call) -> list[tuple[float, float]]:
    """Call both sides in turns; the first call of each is not counted, unless it takes seconds."""
    first = timed(ours), timed(theirs)
    if sum(first) > 8 * SECONDS:
        return [first]
    pairs, spent = list[tuple[float, float]](), 0.0
    while len(pairs) < 3 or (spent < SECONDS and len(pairs) < PAIRS):
        pairs.append((timed(ours), timed(theirs)))
        spent += sum(pairs[-1])
    return pairs


def measured(ours: Call, theirs: Call) -> Line:
    """Return the ratio and the times of both sides."""
    pairs = paired(ours, theirs)
    our_time, their_time = (1000 * median(side) for side in zip(*pairs, strict=True))
    ratio = median(theirs / max(ours, 1e-9) for ours, theirs in pairs)
    figures = {"ratio": ratio, "ours ms": our_time, "theirs ms": their_time}
    return {name: f"{x:.3g}" for name, x in figures.items()} | dict(pairs=str(len(pairs)))


class Table:
    """The rows in the file, which every new row joins at once."""

    def __init__(self, file: Path, anew: bool) -> None:
        self.file, self.anew = file, anew
        lines = csv.DictReader(StringIO(file.read_text())) if file.exists() else ()
        self.lines: dict[Key, Line] = {key_of(line): line for line in lines}
        versions = f"torch {torch.__version__}, kvpress {installed('kvpress')}"
        self.about = dict(processor=processor(), threads="1", versions=versions, commit=commit())
        self.about |= dict(code=digest(*CODE), date=today())

    def has(self, line: Line) -> bool:
        """Whether a row of the same code on the same processor was measured."""
        old = self.lines.get(key_of(line | self.about), {})
        return not self.anew and old.get("code") == self.about["code"]

    def add(self, line: Line) -> None:
        """Print a row and write it."""
        line = {column: (line | self.about).get(column, "") for column in COLUMNS}
        self.lines[key_of(line)] = line
        where = ("tokens", "dtype") if line["tokens"] else ("shape",)
        shown = ("function", "against", *where, "ratio", "ours ms", "theirs ms")
        print(*(line[column] for column in shown), sep="\t", flush=True)
        text = StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.lines[key] for key in sorted(self.lines))
        write_atomically(self.file, text.getvalue())


def key_of(line: Line) -> Key:
    """Return what tells rows apart; a row without tokens has a shape of its own."""
    names = ("function", "against", "tokens", "dtype", "processor", "threads")
    names += () if line["tokens"] else ("shape",)
    return tuple(line[name].zfill(6) if name == "tokens" else line[name] for name in names)


def summary(lines: Iterable[Line]) -> str:
    """Return a table for each processor: a line a function and rival, the slowest first."""
    tables: dict[str, dict[Key, Line]] = {}
    for line in lines:
        if line["tokens"]:
            rival = "plain" if line["against"] == PLAIN else line["against"]
            rows = tables.setdefault(f"{line['processor']}, {line['threads']} thread", {})
            row = rows.setdefault((f"`{line['function']}`", rival), {})
            row[column(int(line["tokens"]), line["dtype"])] = line["ratio"]
    sizes = [column(tokens, str(dtype)[6:]) for tokens, dtype in product(SIZES, DTYPES)]
    parts = []
    for machine, rows in sorted(tables.items()):
        slowest_first = sorted(rows, key=lambda key: min(map(float, rows[key].values())))
        cells = ([*key, *(bold(rows[key].get(x, "–")) for x in sizes)] for key in slowest_first)
        parts.append(f"On {machine}:\n\n{markdown([['function', 'against', *sizes], *cells])}")
    return "\n".join(parts)


def column(tokens: int, dtype: str) -> str:
    """Return the head of the column of a size: `4K bf16`."""
    return f"{tokens // 1024}K {dtype.replace('float', 'f')}"


def bold(ratio: str) -> str:
    """Return a ratio, in bold if it is below 1."""
    return f"**{ratio}**" if ratio != "–" and float(ratio) < 1 else ratio


def timings(lines: Iterable[Line]) -> str:
    """Return the table of the rows that have shapes of their own, with the figures of papers."""
    papers = {(case.name, case.shape): case.paper for case in CASES}
    columns = ("function", "shape", "against", "ratio", "ours ms", "theirs ms")
    about = ("processor", "versions", "commit", "date")
    rows = [
        [line[name] for name in columns]
        + [papers.get((line["function"], line["shape"]), ""), ", ".join(line[x] for x in about)]
        for line in lines
        if not line["tokens"]
    ]
    return markdown([[*columns, "paper ms", "measured on, with, at"], *rows])


def with_tables(page: str, lines: list[Line]) -> str:
    """Return a page with each table between its markers."""
    for name, table in (("ratios", summary(lines)), ("timings", timings(lines))):
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        page = f"{page.split(begin)[0]}{begin}\n\n{table}\n{end}{page.split(end)[1]}"
    return page


def main(words: list[str]) -> None:
    """Measure, print, and write the rows and the page."""
    parser = argparse.ArgumentParser(prog="python -m optimized.bench ratios", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a function or a case")
    parser.add_argument("--against", nargs="+", choices=KINDS, default=["plain"], metavar="KIND",
                        help=f"of {', '.join(KINDS)} (default plain)")  # fmt: skip
    parser.add_argument("--anew", action="store_true", help="measure known rows again")
    parser.add_argument("--file", type=Path, default=FILE, help="where rows are kept")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    table, there = Table(options.file, options.anew), [*ROWS, *(case.name for case in CASES)]
    if unknown := [name for name in options.names if name not in there]:
        parser.error(f"no row of {', '.join(unknown)}; there are {', '.join(dict.fromkeys(there))}")
    names = {*(options.names or there)}
    functions = {part for name in names for part in name.split(" + ")} & {*reference.__all__}
    if functions and failing_tests(sorted(functions), "--examples", "5"):
        sys.exit(1)
    with torch.no_grad():
        for line, sides in chain.from_iterable(KINDS[kind]() for kind in options.against):
            if line["function"] in names and not table.has(line):
                table.add(line | measured(*sides()))
    below = [line for line in table.lines.values() if float(line["ratio"]) < 1]
    print(f"below 1: {len(below)} of {len(table.lines)} rows")
    if options.file == FILE:
        write_atomically(PAGE, with_tables(PAGE.read_text(), [*table.lines.values()]))


__all__ = ["main"]
