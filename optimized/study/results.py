"""The results of a run, kept on disk batch by batch, so that it can be continued and shared."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optimized.study.evaluate import add
from optimized.study.measurements import Row, Trial

OWN = ("out", "json", "quiet", "minutes", "shard", "device", "answer", "pictures")
"""Options that may differ between the parts of one run."""


@dataclass(frozen=True)
class Shard:
    """Which batches a process measures: those whose number leaves `index` divided by `count`."""

    index: int = 0
    count: int = 1

    @property
    def file(self) -> str:
        """The name of the file of results."""
        return f"results-{self.index + 1}of{self.count}.jsonl"


class Results:
    """The file of results of a process: a first line that says of what run, then a batch a line."""

    def __init__(self, folder: Path, shard: Shard, about: dict[str, Any]) -> None:
        self.path = folder / shard.file
        self.saved: dict[int, list[dict[str, Any]]] = {}
        if self.path.exists():
            found, self.saved = read(self.path)
            if identity(found) != identity(about):
                raise ValueError(
                    f"--out must be new, or hold a run of the same options, got {folder}, where "
                    f"{differing(found, about)} differ"
                )
        lines = [about, *({"batch": n, "rows": rows} for n, rows in self.saved.items())]
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        unfinished.replace(self.path)  # without the part of a line that a killed run has written

    def append(self, batch: int, rows: list[dict[str, Any]]) -> None:
        """Write the results of a batch; they are on the disk when this returns."""
        self.saved[batch] = rows
        with self.path.open("a") as file:
            file.write(json.dumps({"batch": batch, "rows": rows}) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read(path: Path) -> tuple[dict[str, Any], dict[int, list[dict[str, Any]]]]:
    """Return the first line and the batches of a file of results; a torn last line is left out."""
    lines = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            lines.append(json.loads(line))
    if not lines or "command" not in lines[0]:
        raise ValueError(f"{path} must be a file of results, got another")
    return lines[0], {line["batch"]: line["rows"] for line in lines[1:]}


def identity(about: dict[str, Any]) -> dict[str, Any]:
    """Return what all parts of a run have in common."""
    shared = {name: value for name, value in about["command"].items() if name not in OWN}
    return {**shared, "model": about["model"], "documents": about["documents"]}


def differing(found: dict[str, Any], about: dict[str, Any]) -> str:
    """Return the names of the options that differ."""
    one, other = identity(found), identity(about)
    return ", ".join(sorted(n for n in {**one, **other} if one.get(n) != other.get(n)))


def merged(folders: Iterable[Path]) -> tuple[dict[str, Any], dict[int, list[dict[str, Any]]]]:
    """Return what a run is about, and its batches, from the folders of all its parts.

    Raises:
        ValueError: there are no results, they are of different runs, or a batch is missing.
    """
    files = sorted(file for folder in folders for file in folder.glob("results-*.jsonl"))
    if not files:
        raise ValueError("merge must get the folders of the parts of a run, got no results")
    about, saved = read(files[0])
    for file in files[1:]:
        other, more = read(file)
        if identity(other) != identity(about):
            raise ValueError(
                f"merge must get parts of one run, got {files[0]} and {file}, where "
                f"{differing(about, other)} differ"
            )
        saved |= more
    missing = [n for n in range(about["batches"]) if n not in saved]
    if missing:
        raise ValueError(
            f"merge must get all {about['batches']} batches of a run, got none of "
            f"{', '.join(map(str, missing))}: let the parts end first"
        )
    return about, saved


def rows_of(trials: Iterable[Trial], saved: dict[int, list[dict[str, Any]]]) -> list[Row]:
    """Return the rows of all batches, in the order of the documents."""
    rows = [Row(trial) for trial in trials]
    for _, batch in sorted(saved.items()):
        add(rows, batch)
    return rows
