"""Draw the figures of the documentation from the code: `python docs/figures.py`.

Names select some: `python docs/figures.py discount hubkv_walk_discount`.

Written to docs/figures/. `python docs/generate.py` draws all and puts them on their pages.
"""

import json
import sys
from collections.abc import Collection

import drawing
import method_pictures  # noqa: F401  registers the pictures of the methods
import observation_pictures  # noqa: F401  registers those of masks and measurements
import quantizer_pictures  # noqa: F401  registers those of quantisers
import scorer_pictures  # noqa: F401  registers the pictures of the scorers
import torch
import walkthrough_pictures  # noqa: F401  registers those of the walks
from drawing import BLUE, INK, STRONG, WEAK, figure
from matplotlib.axes import Axes
from shipped_tables import charts, tables

import reference as kv
from optimized.__main__ import parser
from optimized.bench.report import gpu_measurements_markdown, markdown
from optimized.study import command, pictures


def clustered_scores(tokens: int = 48) -> torch.Tensor:
    """Return scores that resemble attention: a few clusters over low noise."""
    at = torch.arange(tokens, dtype=torch.float32)
    clusters = ((6, 0.9, 2.0), (19, 0.6, 3.5), (34, 1.0, 1.5), (41, 0.5, 2.0))
    hills = sum(h * torch.exp(-(((at - c) / w) ** 2)) for c, h, w in clusters)
    noise = torch.rand(tokens, generator=torch.Generator().manual_seed(1))
    return hills + 0.12 * noise


@figure()
def discount(axes: Axes) -> None:
    """Draw raw scores, hubs, and the discounted scores of the rest."""
    scores = clustered_scores()
    hubs, left = kv.hub_mask(scores, radius=2), kv.smd(scores, radius=2, gamma=0.5)
    at = torch.arange(len(scores))
    axes.bar(at, scores, color=INK, alpha=0.35, label="score")
    axes.bar(at[hubs], left[hubs], color=STRONG, label="hub, as it was")
    axes.bar(at[~hubs], left[~hubs], color=WEAK, label="discounted")
    axes.plot(at[hubs], scores[hubs] + 0.05, "v", color=STRONG, markersize=5)
    axes.set(xlabel="token", ylabel="score", xlim=(-1, len(scores)))
    axes.legend(ncols=3, loc="upper right", bbox_to_anchor=(1.0, 1.2))


@figure(height=2.8)
def gate(axes: Axes) -> None:
    """Draw the share of the correction that the gate applies at each compression ratio."""
    ratio = torch.linspace(0, 1, 101)
    for power, style in ((1, ":"), (2, "-"), (4, "--")):
        axes.plot(ratio, ratio**power, style, color=STRONG, label=f"p = {power}")
    axes.set(xlabel="share of the cache removed, r", ylabel="λ = r^p", xlim=(0, 1), ylim=(0, 1))
    axes.legend()


@figure(height=1.6)
def expander_mask(axes: Axes) -> None:
    """Draw the block mask: each row keeps 32 channels, each column 3 tokens."""
    mask = kv.expander_mask(tokens=96, channels=1024, density=0.03125)
    drawing.dots(axes, mask, 0.4)
    axes.collections[0].set_color(INK)
    axes.set_xticks(range(0, 1025, 128))


@figure(height=2.8)
def spectrum(axes: Axes) -> None:
    """Draw singular values of one graph of 960 tokens and of ten tiles of 96, against the bound."""
    for tile, colour, label in ((False, STRONG, "one graph"), (True, BLUE, "ten tiles")):
        mask = kv.expander_mask(tokens=960, channels=1024, density=0.03125, tile=tile)
        values = torch.linalg.svdvals(mask.double())
        values = values[values > 2**-20]
        places = range(1, len(values) + 1)
        axes.plot(places, values, ".", markersize=3, color=colour, label=label, rasterized=True)
    bound = kv.ramanujan_bound(32, 30)
    axes.axhline(bound, color=INK, linewidth=1, linestyle="--", label="Ramanujan bound")
    axes.set(xlabel="singular value, largest first", ylabel="size", xscale="log", ylim=(0, 34))
    axes.legend()


@figure(height=3.4)
def bytes_by_part(axes: Axes) -> None:
    """Draw the mean size of prompts in each preset, and the size that the paper prints."""
    names = ("KCVT-3", "HEX-3", "LongBench-3", "HEX-4", "LongBench-4")
    prompts = (900, 1304, 1021)
    dense = torch.tensor([kv.kv_bytes(tokens, layers=1) for tokens in prompts])
    sizes = [[kv.hex_size(kv.hex_preset(name), tokens) for tokens in prompts] for name in names]
    shades = {"codes": INK, "scales": "#c3c8cc", "expander": STRONG, "tokens": WEAK}
    shades["residual"] = "#d9b44a"
    shares = {}
    for part in shades:
        weight = torch.tensor([[getattr(size, part) for size in row] for row in sizes])
        shares[part] = (100 * weight / dense).mean(1).tolist()
    drawing.stacked(axes, shares, names, [*shades.values()], height=0.6)
    printed = {row.method: row.paper for row in kv.paper_size()}
    axes.plot(
        [printed[name] for name in names], names, "|", color=INK, markersize=26, label="paper"
    )
    axes.set(xlabel="percent of fp16", xlim=(0, 38))
    axes.legend(ncols=6, loc="upper right", bbox_to_anchor=(1.0, 1.18), markerscale=0.5)


def presses() -> dict[str, str]:
    """Return tables of docs/kvpress_conformance.py: agreeing and differing vectors."""
    found = json.loads((drawing.DOCS / "kvpress.json").read_text())["presses"]
    words = {
        "equal": "equal",
        "factor": "equal up to a factor",
        "different": "different",
        "refused": "refused",
        "unasked": "not applicable",
    }
    counts, rest = [["kvpress", "here", *words.values()]], [["", "vector", "here", "kvpress"]]
    for press, rows in found.items():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(row["function"] for row in rows))
        verdicts = [row["verdict"] for row in rows]
        numbers = (verdicts.count(word) or "" for word in words)
        counts.append([f"`{press}`", names, *map(str, numbers)])
        for row in rows:
            if row["verdict"] in ("factor", "different"):
                both = (", ".join(f"{x:.3g}" for x in row[side]) for side in ("ours", "kvpress"))
                rest.append([f"`{press}`", row["vector"].replace("-", " "), *both])
            elif row["verdict"] == "refused":
                name = row["vector"].replace("-", " ")
                rest.append([f"`{press}`", name, "", f"refused: “{row['lacks']}”"])
    return {"kvpress_counts": markdown(counts), "kvpress_numbers": markdown(rest)}


def of_the_model() -> dict[str, str]:
    """Draw the papers' figures from the shipped model, as the command does by default.

    Returns:
        The text of docs/pictures.md on each figure: the figure with its caption, or the reason why
        there is none.
    """
    model, documents, settings, _ = command.prepare(parser().parse_args([]))
    said = {}
    with command.threads(few=True):
        for one in pictures.pictures(model, documents, settings):
            said[one.name] = f"Not drawn: {one.refused}.\n"
            if one.svg is not None:
                (drawing.DOCS / "generated" / f"{one.name}.svg").write_text(one.svg)
                said[one.name] = f"![{one.title}](generated/{one.name}.svg)\n\n*{one.caption}*\n"
    return said


def main(names: Collection[str] = ()) -> dict[str, str]:
    """Draw the named figures, or all; return the lines that show them, and the tables."""
    drawing.FOLDER.mkdir(exist_ok=True)
    shown = drawing.draw_figures(names)
    for name, svg in charts().items():
        drawing.write(drawing.FOLDER / f"{name}.svg", svg)
    return shown | tables() | presses() | {"measured": gpu_measurements_markdown()}


if __name__ == "__main__":
    main(sys.argv[1:])
