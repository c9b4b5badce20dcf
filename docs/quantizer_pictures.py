"""The pictures of the pages on quantisers and of the mask store, drawn from the pages' examples.

Green is exact or restored, orange is coded or lost, pale orange is the next group of codes, grey
waits.
"""

from types import SimpleNamespace

import drawing
import torch
from drawing import INK, STRONG, WEAK, Told, figure, legend, numbers
from matplotlib.axes import Axes

import reference as kv

PARTS = dict(codes=WEAK, scales=STRONG, outliers="#5c6bc0", factors="#c2185b", residual=INK)
NEXT = f"{WEAK}66"
"""Pale orange."""


@figure(2.6, "quantizers/kivi.md")
def kivi_groups(axes: Axes, _: SimpleNamespace) -> Told:
    tokens, channels, group, residual = 10, 6, 4, 2
    coded = (tokens - residual) // group * group
    grids = {
        "keys": lambda token, channel: token // group + channel,
        "values": lambda token, channel: channel // 3 + token,
    }
    for here, (name, grid) in zip(drawing.panels(axes, 2), grids.items(), strict=True):
        rows = {
            str(channel): [(WEAK, NEXT)[grid(token, channel) % 2] for token in range(coded)]
            + [INK] * (tokens - coded)
            for channel in range(channels)
        }
        drawing.tiles(here, [str(token) for token in range(tokens)], rows)
        here.set(title=name, xlabel="token", ylabel="channel")
        here.tick_params(axis="x", rotation=0)
    legend({"a group": WEAK, "the next group": NEXT, "waits": INK})
    return (
        "Ten tokens of six channels. A group of keys is four tokens of one channel, a group of "
        "values three channels of one token. The last two tokens wait.",
        "A group of keys runs along the tokens of one channel, a group of values along the "
        "channels of one token. The last tokens wait in full precision.",
    )


@figure(2.2, "quantizers/outliers.md")
def gear_outliers(axes: Axes, page: SimpleNamespace) -> Told:
    apart = kv.outlier_mask(page.row, ratio=0.5)
    axes.bar(range(len(page.row)), page.row, color=[STRONG if one else WEAK for one in apart])
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(page.row)), [f"{x:g}" for x in page.row.tolist()])
    axes.set(ylabel="member", xlabel="the row")
    legend({"stored apart": STRONG, "coded": WEAK})
    span = page.row[~apart]
    return (
        f"Six members of a row; set apart are {numbers(page.row[apart].tolist(), 'g')}.",
        f"The largest and the smallest are stored apart. The grid of the others spans "
        f"{span.min():g} to {span.max():g} in place of {page.row.min():g} to {page.row.max():g}.",
    )


@figure(2.2, "quantizers/low_rank.md")
def gear_low_rank(axes: Axes, page: SimpleNamespace) -> Told:
    factors = [kv.low_rank(page.x, rank) for rank in range(5)]
    left = [float((page.x - one.left @ one.right.mT).norm()) for one in factors]
    taken = [left[0] - x for x in left]
    axes.bar(range(5), taken, color=STRONG, label="taken back")
    axes.bar(range(5), left, bottom=taken, color=WEAK, label="still wrong")
    axes.set(xlabel="rank", ylabel="norm")
    drawing.above(axes, 2)
    return (
        f"Norm of what ranks 0 to 4 leave of a matrix: {numbers(left)}.",
        "Each further column takes back the strongest part of what is still wrong.",
    )


@figure(2.0, "quantizers/gear.md")
def gear_parts(axes: Axes, page: SimpleNamespace) -> Told:
    settings = {"codes alone": (0.0, 0), "and outliers": (0.02, 0), "and correction": (0.02, 4)}
    errors = list[float]()
    for share, rank in settings.values():
        block = kv.gear_compress(page.x, bits=2, outliers=share, rank=rank)
        errors.append(float((kv.gear_reconstruct(block) - page.x).norm()))
    drawing.labelled(axes, [*settings], {"error": errors}, [WEAK], ".1f")
    axes.set(xlabel="norm of the error", xlim=(0, 1.1 * errors[0]))
    return (
        f"Error of a span with one far outlier: {numbers(errors, '.1f')}.",
        f"Each part stores what the parts before it left. Here outliers take away "
        f"{1 - errors[1] / errors[0]:.0%} of the error, and the correction "
        f"{1 - errors[2] / errors[1]:.0%} of the rest.",
    )


@figure(1.7, "quantizers/gear_cache.md")
def gear_blocks(axes: Axes, page: SimpleNamespace) -> Told:
    waiting = page.cache.residual_keys.shape[-2]
    sizes = [block.left.shape[1:] for block in page.cache.key_blocks]
    parts = [(tokens, WEAK, f"{tokens}\nrank {rank}") for tokens, rank in sizes]
    start = 0
    for tokens, colour, label in (*parts, (waiting, INK, str(waiting))):
        axes.barh([0], [tokens], left=start, color=colour, edgecolor="white")
        drawing.centred(axes, label, start + tokens / 2, 0, color="white")
        start += tokens
    axes.set(xlabel="token", xlim=(0, start), yticks=[])
    legend({"compressed block": WEAK, "waits": INK})
    return (
        f"A prompt of 100 tokens, blocks of 20 decoded ones, and {waiting} that wait.",
        "The prompt is one block with a correction of rank 4. Every 20 decoded tokens are a block "
        f"of rank 2, and the last {waiting} tokens wait whole.",
    )


@figure(2.4, "quantizers/published_sizes.md")
def printed_sizes(axes: Axes, _: SimpleNamespace) -> Told:
    rows = kv.quantizer_sizes()
    printed, ours = ([getattr(row, name) for row in rows] for name in ("paper", "ours"))
    both = {"printed": torch.tensor(printed), "ours": torch.tensor(ours)}
    drawing.bars(axes, [row.method for row in rows], both, "percent of fp16")
    return (
        "; ".join(f"{row.method}: {row.paper:.2f} printed, {row.ours:.2f} ours" for row in rows),
        "Our layout of KIVI takes fewer bytes than the paper prints, and that of GEAR more.",
    )


@figure(2.0, "quantizers/size.md")
def quantizer_parts(axes: Axes, _: SimpleNamespace) -> Told:
    sizes = {
        "KIVI-2": kv.kivi_size(900, bits=2, group=64, residual=64),
        "GEAR": kv.gear_size(900),
    }
    parts = {part: [getattr(size, part, 0) for size in sizes.values()] for part in PARTS}
    drawing.stacked(axes, parts, [*sizes], [*PARTS.values()], edgecolor="white")
    drawing.above(axes, len(PARTS))
    axes.ticklabel_format(axis="x", style="plain")
    axes.set(xlabel="bytes of 900 tokens")
    totals = ", ".join(f"{name} {sum(size):,}" for name, size in sizes.items())
    return (
        f"Bytes of a prompt of 900 tokens by part: {totals}.",
        "KIVI pays for scales and for the tokens that wait, GEAR for outliers and for its factors.",
    )


@figure(1.6, "hex/mask_cache.md")
def mask_bytes(axes: Axes, page: SimpleNamespace) -> Told:
    entries, kept = page.first.numel(), int(page.first.sum())
    sizes = {"a byte an entry": entries, "held: 4 bytes a kept entry": 4 * kept}
    drawing.labelled(axes, [*sizes], {"bytes": [*sizes.values()]}, form=",")
    axes.set(xlabel="bytes of a mask of 96 × 1024", xlim=(0, 1.2 * entries))
    return (
        f"A mask of {entries:,} entries keeps {kept:,}: {4 * kept:,} bytes, not {entries:,}.",
        "The store holds a mask as the places of its kept entries, in far fewer bytes than one "
        "for each entry.",
    )
