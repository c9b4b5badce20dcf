"""The pictures of the pages on quantisers and of the mask store, drawn from the pages' examples.

Green is exact or restored, orange is coded or lost, grey waits.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from drawing import INK, STRONG, WEAK, figure
from matplotlib.axes import Axes
from method_pictures import PALE, Told, panels
from walkthrough_pictures import WIDTH, above, bars, stacked, tiles

import reference as kv

PARTS = dict(codes=WEAK, scales=STRONG, outliers="#5c6bc0", factors="#c2185b", residual=INK)


@figure(WIDTH, 2.6, "quantizers/kivi.md")
def kivi_groups(axes: Axes, _: SimpleNamespace) -> Told:
    """Draw which numbers of keys and of values share a grid."""
    tokens, channels, group, residual = 10, 6, 4, 2
    coded = (tokens - residual) // group * group
    left, right = panels(axes, 2)

    def shades(of_keys: bool, channel: int) -> list[str]:
        place = (lambda t: t // group + channel) if of_keys else (lambda t: channel // 3 + t)
        return [(STRONG, WEAK)[place(t) % 2] if t < coded else INK for t in range(tokens)]

    for here, name in ((left, "keys"), (right, "values")):
        rows = {str(c): shades(name == "keys", c) for c in range(channels)}
        tiles(here, [str(t) for t in range(tokens)], rows)
        here.set(title=name, xlabel="token", ylabel="channel")
        here.tick_params(axis="x", rotation=0)
    return (
        "Ten tokens of six channels. A group of keys is four tokens of one channel, a group of "
        "values three channels of one token. The last two tokens wait.",
        "Numbers of one colour that touch share a grid: keys along the tokens of a channel, values "
        "along the channels of a token. Grey tokens wait in full precision.",
    )


@figure(WIDTH, 2.2, "quantizers/outliers.md")
def gear_outliers(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the members of the page's row, and those that are set apart."""
    apart = kv.outlier_mask(page.row, ratio=0.5)
    colours = [STRONG if one else WEAK for one in apart]
    axes.bar(range(len(page.row)), page.row, color=colours)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(page.row)), [f"{x:g}" for x in page.row.tolist()])
    axes.set(ylabel="member", xlabel="the row")
    kept = ", ".join(f"{x:g}" for x in page.row[apart].tolist())
    span = page.row[~apart]
    return (
        f"Six members of a row; set apart are {kept}.",
        f"The largest and the smallest (green) are stored apart. The grid of the others spans "
        f"{span.min():g} to {span.max():g} in place of {page.row.min():g} to {page.row.max():g}.",
    )


@figure(WIDTH, 2.2, "quantizers/low_rank.md")
def gear_low_rank(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw what each rank leaves of the page's matrix."""
    factors = [kv.low_rank(page.x, rank) for rank in range(5)]
    left = [float((page.x - one.left @ one.right.mT).norm()) for one in factors]
    axes.bar(range(5), [left[0] - x for x in left], color=STRONG, label="taken back")
    axes.bar(range(5), left, bottom=[left[0] - x for x in left], color=WEAK, label="still wrong")
    axes.set(xlabel="rank", ylabel="norm")
    above(axes, 2)
    return (
        f"Norm of what ranks 0 to 4 leave of a matrix: {', '.join(f'{x:.2f}' for x in left)}.",
        "Each further column takes back (green) the strongest part of what is wrong (orange).",
    )


@figure(WIDTH, 2.0, "quantizers/gear.md")
def gear_parts(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the error of the page's span as outliers and correction are added."""
    settings = {"codes alone": (0.0, 0), "and outliers": (0.02, 0), "and correction": (0.02, 4)}
    errors = list[float]()
    for share, rank in settings.values():
        block = kv.gear_compress(page.x, bits=2, outliers=share, rank=rank)
        errors.append(float((kv.gear_reconstruct(block) - page.x).norm()))
    axes.barh(range(3), errors, color=WEAK)
    for down, error in enumerate(errors):
        axes.annotate(
            f"{error:.1f}", (error, down), (3, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(range(3), list(settings))
    axes.invert_yaxis()
    axes.set(xlabel="norm of the error", xlim=(0, 1.1 * errors[0]))
    return (
        f"Error of a span with one far outlier: {', '.join(f'{x:.1f}' for x in errors)}.",
        "Each part stores what the parts before it left: half of the error is one outlier here, "
        "and the correction takes a fifth of the rest.",
    )


@figure(WIDTH, 1.7, "quantizers/gear_cache.md")
def gear_blocks(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the blocks of the page's cache, and the tokens that wait."""
    start = 0
    for block in page.cache.key_blocks:
        _, tokens, rank = block.left.shape
        axes.barh([0], [tokens], left=start, color=WEAK, edgecolor="white")
        label = f"{tokens}\nrank {rank}"
        axes.annotate(label, (start + tokens / 2, 0), ha="center", va="center", color="white")
        start += tokens
    waiting = page.cache.residual_keys.shape[-2]
    axes.barh([0], [waiting], left=start, color=INK, edgecolor="white")
    axes.annotate(str(waiting), (start + waiting / 2, 0), ha="center", va="center", color="white")
    axes.set(xlabel="token", xlim=(0, start + waiting), yticks=[])
    return (
        f"A prompt of 100 tokens, blocks of 20 decoded ones, and {waiting} that wait.",
        "The prompt is one block with a correction of rank 4, every 20 decoded tokens are a block "
        f"of rank 2 (orange); the last {waiting} tokens wait whole (grey).",
    )


@figure(WIDTH, 2.4, "quantizers/published_sizes.md")
def printed_sizes(axes: Axes, _: SimpleNamespace) -> Told:
    """Draw the printed sizes beside ours."""
    rows = kv.quantizer_sizes()
    printed, ours = ([getattr(row, name) for row in rows] for name in ("paper", "ours"))
    both = {"printed": torch.tensor(printed), "ours": torch.tensor(ours)}
    bars(axes, [row.method for row in rows], both, "percent of fp16")
    return (
        "; ".join(f"{row.method}: {row.paper:.2f} printed, {row.ours:.2f} ours" for row in rows),
        "Our layout of KIVI is smaller than printed, that of GEAR larger.",
    )


@figure(WIDTH, 2.0, "quantizers/size.md")
def quantizer_parts(axes: Axes, _: SimpleNamespace) -> Told:
    """Draw the parts of both caches of a prompt of 900 tokens."""
    sizes = {
        "KIVI-2": kv.kivi_size(900, bits=2, group=64, residual=64),
        "GEAR": kv.gear_size(900),
    }
    parts = {part: [getattr(size, part, 0) for size in sizes.values()] for part in PARTS}
    stacked(axes, parts, [*sizes], [*PARTS.values()], edgecolor="white")
    above(axes, len(PARTS))
    axes.ticklabel_format(axis="x", style="plain")
    axes.set(xlabel="bytes of 900 tokens")
    totals: Sequence[str] = [f"{name} {sum(size):,}" for name, size in sizes.items()]
    return (
        f"Bytes of a prompt of 900 tokens by part: {', '.join(totals)}.",
        "KIVI pays for scales and for the tokens that wait, GEAR for outliers and for its factors.",
    )


@figure(WIDTH, 1.6, "hex/mask_cache.md")
def mask_bytes(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the bytes of the page's mask as booleans, as bits and as the store holds it."""
    entries, kept = page.first.numel(), int(page.first.sum())
    sizes = {"a byte an entry": entries, "held: 4 bytes a kept entry": 4 * kept}
    axes.barh(range(2), list(sizes.values()), color=[INK, STRONG], alpha=1 - PALE)
    for down, size in enumerate(sizes.values()):
        axes.annotate(f"{size:,}", (size, down), (3, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(2), list(sizes))
    axes.invert_yaxis()
    axes.set(xlabel="bytes of a mask of 96 × 1024", xlim=(0, 1.2 * entries))
    return (
        f"A mask of {entries:,} entries keeps {kept:,}: {4 * kept:,} bytes, not {entries:,}.",
        "The store holds a mask as the places of its kept entries.",
    )
