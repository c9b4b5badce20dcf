"""Tables of these pages that take minutes: `python docs/tables.py NAME` prints one as Markdown.

`hex_ablation`: HEX-3 with one setting changed at a time, and Table 4, on a synthetic stream whose
keys have a correlation of 0.9 from one token to the next and an offset for each channel; queries
lean towards the mean key of their head. `table5`: Table 5 of HEX with newly drawn masks; the
statistics of the draws go to `table5_draws.csv`, which the tests read.
"""

import csv
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from math import sqrt
from pathlib import Path

import torch
from torch import Tensor

import optimized as kv
from optimized.bench.report import markdown
from reference import HexConfig

Table = list[Sequence[str]]


def correlate(x: Tensor, by: float) -> Tensor:
    """Make each token correlated with the one before, in place."""
    for t in range(1, x.shape[-2]):
        x[:, t] = by * x[:, t - 1] + (1 - by**2) ** 0.5 * x[:, t]
    return x


HEADS, WIDTH = 2, 64
PROMPT, DECODED, QUERY_HEADS = 480, 192, 4
CHANGES = {
    "block $n_b$": ("block", (32, 64, 96, 192)),
    "mode": ("mode", ("append", "full", "oracle")),
    "bits $b$": ("bits", (2, 3, 4, 8)),
    r"heavy $\eta$": ("heavy", (0.0, 0.02, 0.05, 0.1)),
    "recent $r$": ("recent", (0, 8, 16, 32)),
    r"density $\rho$": ("density", (0.0, 0.03125, 0.0625, 0.125)),
}
KINDS = ("full", "expander", "expander-EO", "H2O", "H2O-EO", "quant")


def stream() -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    tokens = PROMPT + DECODED
    keys = correlate(draw(HEADS, tokens, WIDTH), 0.9)
    offsets = 2 * draw(HEADS, 1, WIDTH)
    values, queries = draw(HEADS, tokens, WIDTH), draw(QUERY_HEADS, tokens, WIDTH)
    queries = queries + offsets.repeat_interleave(QUERY_HEADS // HEADS, 0) / 2
    return queries.half(), (keys + offsets).half(), values.half()


def deviations(configs: list[HexConfig]) -> list[str]:
    """Return the mean deviation and the percentage of bytes of each setting."""
    rows = kv.sensitivity(*stream(), PROMPT, configs)
    return [f"{row.error:.3f} ({row.percent:.1f})" for row in rows]


def hex_ablation() -> list[Table]:
    """Return a line for each changed setting, and one for each row of Table 4."""
    base = kv.hex_preset("HEX-3")._replace(near=True)
    changed: Table = [["setting", "", "", "", ""]]
    for name, (setting, values) in CHANGES.items():
        found = deviations([base._replace(**{setting: value}) for value in values])
        cells = [f"{value}: {text}" for value, text in zip(values, found, strict=True)]
        changed.append([name, *cells, *[""] * (4 - len(cells))])
    rows: Table = [["row of Table 4", "3 bits", "4 bits"]]
    for kind in KINDS:  # EO has no row of three bits
        three = "" if kind.endswith("EO") else f"Table4-3-{kind}"
        names = three, f"Table4-4-{kind}"
        rows.append([kind, *(deviations([kv.hex_preset(x)])[0] if x else "" for x in names)])
    return [changed, rows]


CHANNELS, DEGREE = 1024, 32
HERE = next((Path(__file__).parents[1] / "spec_tests").rglob("table5.csv")).parent
DRAWS = 400
HEADER = ["tokens", "draws", "graphs", "mean", "deviation", "least", "most"]


def summary(tokens: int) -> dict[str, float]:
    """Accept masks of one size and summarise their second singular values."""
    found = [kv.random_expander(tokens, CHANNELS, DEGREE, seed) for seed in range(DRAWS)]
    second = [kv.second_singular_value(expander.mask) for expander in found]
    graphs = sum(expander.draws for expander in found)
    mean, deviation = statistics.mean(second), statistics.stdev(second)
    figures = (tokens, DRAWS, graphs, mean, deviation, min(second), max(second))
    return dict(zip(HEADER, figures, strict=True))


def table5() -> list[Table]:
    """Return the paper's 18 rows beside ours, and write the statistics of the draws."""
    head = "size|d₁|d₂|λ₁|λ₂, drawn: mean ± sd|least to most|λ₂, paper|bound|gap|accepted of drawn"
    lines: Table = [head.split("|")]
    with open(HERE / "table5.csv", newline="") as file:
        printed = list(csv.DictReader(file))
    with open(HERE / "table5_draws.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        for row in printed:
            tokens, degree, paper = (
                float(row[name]) for name in ("tokens", "channel_degree", "lambda2")
            )
            ours = summary(int(tokens))
            writer.writerow({k: f"{v:.4f}" if isinstance(v, float) else v for k, v in ours.items()})
            first, bound = sqrt(DEGREE * degree), kv.ramanujan_bound(DEGREE, int(degree))
            drawn = f"{ours['mean']:.3f} ± {ours['deviation']:.3f}"
            ends = f"{ours['least']:.3f} to {ours['most']:.3f}"
            cells = [f"1024 × {tokens:.0f}", str(DEGREE), f"{degree:.0f}", f"{first:.2f}", drawn]
            cells += [ends, f"{paper:.2f}", f"{bound:.2f}", f"{first - ours['mean']:.2f}"]
            lines.append([*cells, f"{DRAWS} of {ours['graphs']:.0f}"])
    return [lines]


TABLES = dict(hex_ablation=hex_ablation, table5=table5)

if __name__ == "__main__":
    if (name := "".join(sys.argv[1:])) not in TABLES:
        sys.exit(f"usage: python docs/tables.py {{{','.join(TABLES)}}}")
    print(*map(markdown, TABLES[name]()), sep="\n")
