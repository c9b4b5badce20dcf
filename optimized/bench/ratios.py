"""Ratios on a CPU: `python -m optimized.bench ratios [NAME ...]`.

Each function is measured against the plain way to it and against the reference. `--against library`
takes PyTorch's attention in full precision and the libraries that are installed, `--against paper`
the rows of `cases`. Both sides are called in turns in one process on one thread, and the ratio is
the median of the pairs, by process time. A row is printed when it is measured, and written to
docs/ratios.csv. A row of the same code on the same processor is not measured again, except with
`--anew`. Functions must first pass their agreement tests. No timing is ever asserted.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterable
from functools import partial
from io import StringIO
from itertools import product
from pathlib import Path
from statistics import median
from textwrap import indent
from time import process_time
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import optimized
import reference
from optimized._atomic_files import write_atomically
from optimized.bench.agreement import failing_tests
from optimized.bench.cases import CASES
from optimized.bench.library import rivals
from optimized.bench.report import ROOT, commit, digest, installed, markdown, processor, today
from optimized.bench.straightforward import ROWS
from optimized.bench.straightforward.rows import layer

FILE, PAGE = ROOT / "docs/ratios.csv", ROOT / "docs/performance.md"
SIZES, DTYPES = (1024, 4096, 16384), (torch.float32, torch.bfloat16)
PLAIN, REFERENCE = "straightforward", "reference"
SECONDS, PAIRS, PATIENCE = 0.25, 41, 0.2
"""How long a row is measured, the most pairs, and the most seconds of a call at a smaller size."""
CODE = (
    *("reference", "optimized/vector", "optimized/bench/straightforward"),
    "optimized/_dispatch.py",
)
"""What is hashed: the measured code and the plain ways."""
COLUMNS = (
    *("function", "against", "tokens", "dtype", "ratio", "ours ms", "theirs ms", "pairs"),
    *("shape", "processor", "threads", "versions", "commit", "code", "date"),
)
ASKED = (
    *("snapkv", "cake", "knorm", "expected_attention", "kvzip_chunk", "fastkvzip", "h2o_mass"),
    *("retain", "evict", "compress", "ragged_attention", "hubkv_refine", "hubkv_compress"),
    *("graphkv_refine", "graphkv_compress", "attention_mass", "kcvt", "hex_compress"),
    *("hex_reconstruct", "hex_attention"),
)
"""The functions of the first table: what a system is made of."""
Line = dict[str, str]
Key = tuple[str, ...]


def timed(call: Callable[[], object]) -> float:
    """Return the process time of a call in seconds."""
    start = process_time()
    call()
    return process_time() - start


def paired(ours: Callable[[], object], theirs: Callable[[], object]) -> list[tuple[float, float]]:
    """Call both sides in turns; the first call of each is not counted, unless it takes seconds."""
    first = timed(ours), timed(theirs)
    if sum(first) > 8 * SECONDS:
        return [first]
    pairs, spent = list[tuple[float, float]](), 0.0
    while len(pairs) < 3 or (spent < SECONDS and len(pairs) < PAIRS):
        pairs.append((timed(ours), timed(theirs)))
        spent += sum(pairs[-1])
    return pairs


def agree(ours: Any, theirs: Any) -> bool:
    """Whether both results have the same shapes and numbers within a tenth."""
    one, other = leaves(ours), leaves(theirs)
    return len(one) == len(other) and all(
        a.shape == b.shape and ((a.double() - b.double()).abs() <= 0.1 * scale(a)).all()
        for a, b in zip(one, other, strict=True)
    )


def scale(x: Tensor) -> Tensor:
    """Return the largest magnitude of a tensor."""
    return x.double().abs().amax().clamp(min=1e-30) if x.numel() else torch.tensor(1.0)


def leaves(result: Any) -> list[Tensor]:
    """Return the tensors and numbers of a result, in order."""
    every = [torch.as_tensor(x) for x in tree_leaves(result) if isinstance(x, Tensor | int | float)]
    return [torch.where(x.isinf(), 0, x) if x.is_floating_point() else x for x in every]


class Table:
    """The rows in the file, which every new row joins at once."""

    def __init__(self, file: Path, anew: bool) -> None:
        self.file, self.anew = file, anew
        lines = csv.DictReader(StringIO(file.read_text())) if file.exists() else ()
        self.lines: dict[Key, Line] = {key_of(line): line for line in lines}
        versions = f"torch {torch.__version__}, kvpress {installed('kvpress')}"
        self.about = dict(processor=processor(), threads="1", versions=versions, commit=commit())
        self.about |= dict(code=digest(*CODE), date=today())

    def known(self, given: Line) -> Line | None:
        """Return the row of the same code on the same processor, if it was measured."""
        there = self.lines.get(key_of(given | self.about))
        same = there and not self.anew and there["code"] == self.about["code"]
        return there if same else None

    def add(self, given: Line) -> Line:
        """Print a row and write it."""
        line = {column: (given | self.about).get(column, "") for column in COLUMNS}
        self.lines[key_of(line)] = line
        where = ("tokens", "dtype") if line["tokens"] else ("shape",)
        shown = ("function", "against", *where, "ratio", "ours ms", "theirs ms")
        print(*(line[column] for column in shown), sep="\t", flush=True)
        text = StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.lines[key] for key in sorted(self.lines))
        write_atomically(self.file, text.getvalue())
        return line


def key_of(line: Line) -> Key:
    """Return what tells rows apart; a row without tokens has a shape of its own."""
    names = ("function", "against", "tokens", "dtype", "processor", "threads")
    names += () if line["tokens"] else ("shape",)
    return tuple(line[name].zfill(6) if name == "tokens" else line[name] for name in names)


def measured(ours: Callable[[], object], theirs: Callable[[], object]) -> Line:
    """Return the ratio and the times of both sides."""
    pairs = paired(ours, theirs)
    here, there = (1000 * median(side) for side in zip(*pairs, strict=True))
    ratio = median(theirs / max(ours, 1e-9) for ours, theirs in pairs)
    return dict(zip(("ratio", "ours ms", "theirs ms"), (f"{x:.3g}" for x in (ratio, here, there)),
                    strict=True)) | dict(pairs=str(len(pairs)))  # fmt: skip


def straightforward(table: Table, names: list[str], against: str) -> None:
    """Measure functions against the plain way or the reference, small sizes first."""
    slow = dict[str, str]()
    for tokens, name, dtype in product(SIZES, names, DTYPES):
        row, line = ROWS[name], sized(name, against, tokens, dtype)
        known = table.known(line)
        if known is None and (tokens > row.most or name in slow):
            known = table.add(line | dict(ratio="too large" if tokens > row.most else slow[name]))
        if known is None:
            given, ours = row.inputs(tokens, dtype), getattr(optimized, name)
            theirs = row.plain if against == PLAIN else getattr(reference, name)
            found = dict(ratio="differs")
            if (
                against == REFERENCE
                or dtype != torch.float32  # where ordinary scores are tied
                or agree(row.compared(ours(**given)), theirs(**given))
            ):
                found = measured(partial(ours, **given), partial(theirs, **given))
            known = table.add(line | found)
        if against == REFERENCE and is_number(known):
            seconds = float(known["theirs ms"]) / 1000
            if seconds > PATIENCE:
                slow[name] = f"skipped: {seconds:.1f} s at {tokens} tokens"


def sized(name: str, against: str, tokens: int, dtype: torch.dtype) -> Line:
    """Return what identifies the row of a function at a size."""
    line = dict(function=name, against=against, tokens=str(tokens), dtype=str(dtype)[6:])
    return line | dict(shape=ROWS[name].shape.format(tokens))


def libraries(table: Table, names: list[str]) -> None:
    """Measure functions against PyTorch's attention and the libraries that are installed."""
    for tokens, ((name, against), sides), dtype in product(SIZES, rivals().items(), DTYPES):
        line = sized(name, against, tokens, dtype)
        if name in names and table.known(line) is None:
            given = ROWS[name].inputs(tokens, dtype), layer(tokens, dtype)
            table.add(line | measured(*sides(*given)))


def cases(table: Table, names: list[str]) -> None:
    """Measure the rows that have shapes of their own."""
    for case in CASES:
        line = dict(function=case.name, against=case.against, tokens="", dtype="", shape=case.shape)
        if case.name in names and table.known(line) is None:
            given = case.inputs()
            table.add(line | measured(partial(case.ours, **given), partial(case.theirs, **given)))


def is_number(line: Line) -> bool:
    """Whether a row has a ratio."""
    return line["ratio"][:1].isdigit()


def summary(lines: Iterable[Line]) -> str:
    """Return the tables of the page: first what most users call, then everything else."""
    found: dict[Key, dict[str, str]] = {}
    for line in lines:
        if line["tokens"] and line["against"] != REFERENCE and is_number(line):
            rival = "plain" if line["against"] == PLAIN else line["against"]
            key = (line["function"], rival, f"{line['processor']}, {line['threads']} thread")
            kind = "f32" if line["dtype"] == "float32" else "bf16"
            found.setdefault(key, {})[f"{int(line['tokens']) // 1024}K {kind}"] = line["ratio"]
    names = {place: chr(65 + at) for at, place in enumerate(sorted({key[2] for key in found}))}
    said = "; ".join(f"{letter}: {place}" for place, letter in names.items())
    parts = {
        True: {key: found[key] for key in found if key[0] in ASKED},
        False: {key: found[key] for key in found if key[0] not in ASKED},
    }
    first, rest = (table_of(parts[asked], names) for asked in (True, False))
    rest = indent(rest, " " * 4)
    return f'Processors: {said}.\n\n{first}\n??? info "All other functions"\n\n{rest}'


def table_of(found: dict[Key, dict[str, str]], names: dict[str, str]) -> str:
    """Return a line for each function and rival, the slowest first."""
    sizes = [f"{size // 1024}K {kind}" for size in SIZES for kind in ("f32", "bf16")]
    rows = [
        [f"`{key[0]}`", key[1], names[key[2]], *(bold(found[key].get(size, "–")) for size in sizes)]
        for key in sorted(found, key=lambda key: min(map(float, found[key].values())))
    ]
    return markdown([["function", "against", "on", *sizes], *rows])


def bold(ratio: str) -> str:
    """Return a ratio, in bold if it is below 1."""
    return f"**{ratio}**" if ratio[:1].isdigit() and float(ratio) < 1 else ratio


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
    for name, made in (("ratios", summary(lines)), ("timings", timings(lines))):
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        page = f"{page.split(begin)[0]}{begin}\n\n{made}\n{end}{page.split(end)[1]}"
    return page


def main(words: list[str]) -> None:
    """Measure, print, and write the rows and the page."""
    parser = argparse.ArgumentParser(prog="python -m optimized.bench ratios", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a function or a case")
    kinds = dict(plain=PLAIN, reference=REFERENCE, library="", paper="")
    chosen = [*kinds][:2]
    parser.add_argument("--against", nargs="+", choices=kinds, default=chosen, metavar="KIND",
                        help=f"of {', '.join(kinds)} (default {' '.join(chosen)})")  # fmt: skip
    parser.add_argument("--anew", action="store_true", help="measure known rows again")
    parser.add_argument("--file", type=Path, default=FILE, help="where rows are kept")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    table, known = Table(given.file, given.anew), dict.fromkeys([*ROWS, *(x.name for x in CASES)])
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no row of {', '.join(unknown)}; there are {', '.join(known)}")
    names = given.names or [*known]
    parts = {part for name in names for part in name.split(" + ")}
    functions = sorted(parts & {*reference.__all__})
    if functions and failing_tests(functions, "--examples", "5"):
        sys.exit(1)
    with torch.no_grad():
        for kind in given.against:
            if kind in ("plain", "reference"):
                straightforward(table, [name for name in names if name in ROWS], kinds[kind])
            else:
                (libraries if kind == "library" else cases)(table, names)
    below = [line for line in table.lines.values() if is_number(line) and float(line["ratio"]) < 1]
    print(f"below 1: {len(below)} of {len(table.lines)} rows")
    if given.file == FILE:
        write_atomically(PAGE, with_tables(PAGE.read_text(), [*table.lines.values()]))


__all__ = ["main"]
