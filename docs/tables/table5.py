"""Table 5 of HEX with newly drawn masks: `python docs/tables/table5.py` prints and writes it.

The printed rows are in `table5.csv` of the tests. The statistics of the draws go to
`table5_draws.csv` beside it, which the tests read.
"""

import csv
import statistics
from math import sqrt
from pathlib import Path

from optimized import ramanujan_bound, random_expander, second_singular_value

HERE = next((Path(__file__).parents[2] / "spec_tests").rglob("table5.csv")).parent
CHANNELS, TOKEN_DEGREE, DRAWS = 1024, 32, 400
HEADER = ["tokens", "draws", "graphs", "mean", "deviation", "least", "most"]


def printed() -> list[dict[str, float]]:
    """Return the rows of the paper's table."""
    with open(HERE / "table5.csv", newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def draw(tokens: int, draws: int) -> dict[str, float]:
    """Accept `draws` masks of one size and summarise their second singular values."""
    found = [random_expander(tokens, CHANNELS, TOKEN_DEGREE, seed) for seed in range(draws)]
    second = [second_singular_value(expander.mask) for expander in found]
    graphs = sum(expander.draws for expander in found)
    mean, deviation = statistics.mean(second), statistics.stdev(second)
    figures = (tokens, draws, graphs, mean, deviation, min(second), max(second))
    return dict(zip(HEADER, figures, strict=True))


def main() -> None:
    """Print the 18 rows, and write the statistics of the draws."""
    print(
        "| size | d₁ | d₂ | λ₁ | λ₂, drawn: mean ± sd | least to most | λ₂, paper | bound "
        "| gap | accepted of drawn |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with open(HERE / "table5_draws.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        for row in printed():
            tokens, channel_degree = int(row["tokens"]), int(row["channel_degree"])
            ours = draw(tokens, DRAWS)
            writer.writerow({k: f"{v:.4f}" if isinstance(v, float) else v for k, v in ours.items()})
            file.flush()
            first, bound = sqrt(TOKEN_DEGREE * channel_degree), ramanujan_bound(32, channel_degree)
            print(
                f"| 1024 × {tokens} | {TOKEN_DEGREE} | {channel_degree} | {first:.2f} "
                f"| {ours['mean']:.3f} ± {ours['deviation']:.3f} "
                f"| {ours['least']:.3f} to {ours['most']:.3f} | {row['lambda2']:.2f} "
                f"| {bound:.2f} | {first - ours['mean']:.2f} "
                f"| {ours['draws']:.0f} of {ours['graphs']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
