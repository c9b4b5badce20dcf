"""Tables of these pages that take minutes: `python docs/tables.py NAME` prints one as Markdown.

`append_vs_full`: append and full mode of HEX on three kinds of keys, and values of the same kind.
`hex_ablation`: HEX-3 with one setting changed at a time, and Table 4, on a synthetic stream whose
keys have a correlation of 0.9 from one token to the next and an offset for each channel; queries
lean towards the mean key of their head. `masked_matrix_norms`: the relative change of a matrix by
masking. `table5`: Table 5 of HEX with newly drawn masks; the statistics of the draws go to
`table5_draws.csv`, which the tests read.
"""

import csv
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from pathlib import Path

import torch
from torch import Tensor

import optimized as kv
from optimized.bench.report import markdown
from reference import HexConfig

Table = list[Sequence[str]]


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def correlate(x: Tensor, by: float) -> Tensor:
    """Make each token correlated with the one before, in place."""
    for t in range(1, x.shape[-2]):
        x[:, t] = by * x[:, t - 1] + (1 - by**2) ** 0.5 * x[:, t]
    return x


HEADS, TOKENS, WIDTH, PREFILL, LAST = 2, 1920, 64, 96, 32
MODES = {"append": "append", "oracle": "full from originals", "full": "full from the lossy cache"}


def heavy_tailed(seed: int) -> Tensor:
    """Return independent numbers of Student's t distribution with 3 degrees of freedom."""
    x = normal(seed, 4, HEADS, TOKENS, WIDTH)
    return x[0] / x[1:].square().mean(0).sqrt()


KEYS: dict[str, Callable[[int], Tensor]] = {
    "independent, heavy tails (Student's t, 3 degrees of freedom)": heavy_tailed,
    "independent, Gaussian": lambda seed: normal(seed, HEADS, TOKENS, WIDTH),
    "correlated along the tokens (0.995 from one to the next) with channel offsets": lambda seed: (
        correlate(normal(seed, HEADS, TOKENS, WIDTH), 0.995)
        + 2 * normal(seed + 100, HEADS, 1, WIDTH)
    ),
}


def errors(keys: Tensor, values: Tensor, mode: str) -> str:
    """Return the relative error of the keys, and the mean deviation of the last queries."""
    queries = normal(3, HEADS, TOKENS, WIDTH)
    config = HexConfig(bits=4, density=0.0, heavy=0.0, recent=0)._replace(mode=mode)
    everything = queries, keys, values
    cache = kv.hex_prefill(*(x[:, :PREFILL] for x in everything), config=config)
    cache = kv.hex_append(cache, *(x[:, PREFILL:] for x in everything))
    held = kv.hex_read(cache)
    deviation = kv.attention_error(queries[..., -LAST:, :], keys, values, *held).mean()
    return f"{float((held[0] - keys).norm() / keys.norm()):.3f}, {float(deviation):.3f}"


def append_vs_full() -> list[Table]:
    """Return a line for each kind of keys."""
    lines = [[name, *(errors(make(1), make(2), x) for x in MODES)] for name, make in KEYS.items()]
    return [[["keys and values", *MODES.values()], *lines]]


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
DENSITY = DEGREE / CHANNELS
MASKS = ((96, False), (960, False), (1920, False), (1920, True))


def single(tokens: int) -> Tensor:
    """Return a matrix with one nonzero entry: the first that the mask drops."""
    matrix = torch.zeros(tokens, CHANNELS, dtype=torch.float64)
    place = (~kv.expander_mask(tokens, CHANNELS, DENSITY)).nonzero()[0].tolist()
    matrix[tuple(place)] = 1.0
    return matrix


def drawn(rows: int, columns: int) -> Tensor:
    """Return standard normal numbers; the number of rows is the seed."""
    return normal(rows, rows, columns, dtype=torch.float64)


MATRICES: dict[str, Callable[[int], Tensor]] = {
    f"signs, rank {rank}": lambda tokens, rank=rank: (
        drawn(tokens, rank).sign() @ drawn(CHANNELS, rank).sign().T
    )
    for rank in (1, 4, 16)
} | {
    "Gaussian, rank 4": lambda tokens: drawn(tokens, 4) @ drawn(CHANNELS, 4).T,
    "Gaussian, full rank": lambda tokens: drawn(tokens, CHANNELS),
    "a single entry": single,
}


def change(mask: Tensor, matrix: Tensor) -> float:
    """Return the norm of the change by rescaled masking, over the norm of the matrix."""
    changed = mask.double() * matrix / DENSITY - matrix
    return float(torch.linalg.matrix_norm(changed, 2) / torch.linalg.matrix_norm(matrix, 2))


def masked_matrix_norms() -> list[Table]:
    """Return a line for each kind of matrix."""
    masks = [kv.expander_mask(n, CHANNELS, DENSITY, tile=tile) for n, tile in MASKS]
    columns = [f"n = {n}" + ", tiled" * tile for n, tile in MASKS]
    ratios = [kv.second_singular_value(x) / (DENSITY * sqrt(x.numel())) for x in masks]
    rows = {"σ₂/σ₁": ratios}
    rows |= {name: [change(x, make(len(x))) for x in masks] for name, make in MATRICES.items()}
    lines = [[name, *(f"{value:.3f}" for value in values)] for name, values in rows.items()]
    return [[["relative change, ‖M∘X/ρ − X‖/‖X‖", *columns], *lines]]


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


TABLES = dict(
    append_vs_full=append_vs_full, hex_ablation=hex_ablation,
    masked_matrix_norms=masked_matrix_norms, table5=table5,
)  # fmt: skip

if __name__ == "__main__":
    if (name := "".join(sys.argv[1:])) not in TABLES:
        sys.exit(f"usage: python docs/tables.py {{{','.join(TABLES)}}}")
    print(*map(markdown, TABLES[name]()), sep="\n")
