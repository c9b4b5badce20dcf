"""Tables and files of the benchmarks."""

import json
import platform
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


def surroundings(device: str, threads: int) -> tuple[str, str, str, str, str]:
    """Return the device's name, the versions of torch and triton, the commit and the date."""
    date = datetime.now(UTC).date().isoformat()
    return hardware(device, threads), torch.__version__, installed("triton"), commit(), date


def hardware(device: str, threads: int) -> str:
    """Return the name of the GPU, or that of the processor and the number of threads."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    about = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (about.read_text().splitlines() if about.exists() else [])
        if line.startswith("model name")
    ]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {threads} thread{'s' * (threads > 1)}"


def installed(package: str) -> str:
    """Return a package's version, or "none"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def commit() -> str:
    """Return the commit, with a plus sign where the tree differs from it."""
    try:
        done = [
            subprocess.run(
                ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "-uno"))
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done[0] + ("+" if done[1] else "")


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a text table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


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
    head = ["operation", "shape", "µs", "as a graph", "of a copy", "eager ÷", "fp16 ÷", "by"]
    lines = [[*head, "fp16 ÷, graphs"]]
    for row in run["rows"]:
        if row["step"] != "bits" and "failed" not in row:
            options = "".join(f", {name} {value}" for name, value in row["options"].items())
            fp16 = row.get("fp16", {})
            first = row.get("kernel", fp16)
            graph = row.get("graph", fp16.get("graph", {}))
            rated = row if "of_copy" in row else fp16
            cells = [row["operation"], row["shape"] + options, taken(first), taken(graph)]
            cells.append(share(rated.get("of_copy"), ".0%"))
            cells += [share(row.get(f"{name}_ratio"), ".2f") for name in ("eager", "fp16")]
            cells += [fp16.get("fastest") or "", share(row.get("fp16_graph_ratio"), ".2f")]
            lines.append(cells)
    rates = [row["copy_bytes_per_s"] / 1e9 for row in run["rows"] if "copy_bytes_per_s" in row]
    copy = f"; a copy passes {min(rates):.0f} to {max(rates):.0f} GB/s" if rates else ""
    return f"{about['device']}, {where}{copy}.\n\n{markdown(lines)}"


def taken(side: dict[str, Any]) -> str:
    """Return the time of a side, or "refused", or nothing."""
    return f"{side['us']:.1f}" if "us" in side else "refused" * ("refused" in side)


def share(value: float | None, how: str) -> str:
    """Return a formatted number, or an empty text for None."""
    return "" if value is None else format(value, how)
