"""Tables and files of the benchmarks."""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs/measured.json"
"""Where `python -m optimized.bench cuda` stores its measurements."""


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(UTC).date().isoformat()


def digest(*paths: str) -> str:
    """Return a hash of source files and of those in folders, committed or not."""
    found = hashlib.sha256()
    for path in map(ROOT.joinpath, paths):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return found.hexdigest()[:12]


def processor() -> str:
    """Return the processor's class: its name without a number, and its widest vectors."""
    about = Path("/proc/cpuinfo")
    text = about.read_text() if about.exists() else ""
    names = [line.partition(":")[2] for line in text.splitlines() if line.startswith("model name")]
    name = names[0].split("@")[0].strip() if names else "unknown processor"
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def installed(package: str) -> str:
    """Return a package's version, or "none"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def commit() -> str:
    """Return the commit, with a plus sign where the tree differs from it."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def markdown(lines: Iterable[Sequence[str]]) -> str:
    """Return lines as a Markdown table with the first one as head."""
    head, *rest = lines
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rest))


def gpu_measurements_markdown(file: Path = MEASURED) -> str:
    """Return the measurements on GPUs as Markdown, without dry runs."""
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    parts = [on_gpu(run) for run in runs if not run["about"]["dry_run"]]
    return "\n".join(parts) or "Nothing yet: no GPU has run the kernels.\n"


def on_gpu(run: dict[str, Any]) -> str:
    """Return one run as Markdown: its hardware and versions, and a line for each operation."""
    about = run["about"]
    names = ("python", "torch", "triton", "cuda", "commit", "code", "date")
    where = ", ".join(f"{name} {about[name]}" for name in names)
    cells = [row_cells(row) for row in run["rows"] if "failed" not in row]
    rates = [row["copy_bytes_per_s"] / 1e9 for row in run["rows"] if "copy_bytes_per_s" in row]
    copy = f"; a copy passes {min(rates):.0f} to {max(rates):.0f} GB/s" if rates else ""
    lines = [[*cells[0]], *([*row.values()] for row in cells)] if cells else [[""]]
    return f"{about['device']}, {where}{copy}.\n\n{markdown(lines)}"


def row_cells(row: dict[str, Any]) -> dict[str, str]:
    """Return the columns of one row of a run on a GPU."""
    fp16 = row.get("fp16", {})
    return {
        "operation": row["operation"],
        "shape": row["shape"],
        "µs": taken(row.get("kernel", {})),
        "as a graph": taken(row.get("graph", {})),
        "of a copy": share(row.get("of_copy"), ".0%"),
        "eager ÷": share(row.get("eager_ratio"), ".2f"),
        "fp16 ÷": share(row.get("fp16_ratio"), ".2f"),
        "by": fp16.get("fastest") or "",
        "fp16 ÷, graphs": share(row.get("fp16_graph_ratio"), ".2f"),
    }


def taken(side: dict[str, Any]) -> str:
    """Return the time of a side, or "refused", or nothing."""
    return f"{side['us']:.1f}" if "us" in side else "refused" * ("refused" in side)


def share(value: float | None, how: str) -> str:
    """Return a formatted number, or an empty text for None."""
    return "" if value is None else format(value, how)
