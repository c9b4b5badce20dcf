"""The pictures of the three walks, drawn from the examples on their pages."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from drawing import INK, STRONG, WEAK, figure
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

HUBKV, GRAPHKV, HEX = "hubkv/walk.md", "graphkv/walk.md", "hex/walk.md"
COLOURS = (STRONG, WEAK, INK)
WIDTH = 5.6  # inches, so that letters stay legible on a phone


def bars(
    axes: Axes, words: Sequence[str], rows: Mapping[str, torch.Tensor], what: str = ""
) -> None:
    """Draw a bar for each word and row, rows side by side."""
    width = 0.8 / len(rows)
    at = torch.arange(len(words))
    for place, ((label, row), colour) in enumerate(zip(rows.items(), COLOURS, strict=False)):
        shift = (place - (len(rows) - 1) / 2) * width
        axes.bar(at + shift, row, width, color=colour, label=label)
    axes.set(xlim=(-0.7, len(words) - 0.3), ylabel=what)
    axes.set_xticks(range(len(words)), words, rotation=50, ha="right", rotation_mode="anchor")
    above(axes, len(rows))


def stacked(
    axes: Axes,
    parts: Mapping[str, Sequence[int] | Sequence[float]],
    names: Sequence[str],
    colours: Sequence[str],
    *,
    numbered: bool = False,
    **how: Any,
) -> None:
    """Draw a bar for each name, of one piece for each part."""
    left = [0.0] * len(names)
    for (part, sizes), colour in zip(parts.items(), colours, strict=False):
        shown = axes.barh(names, sizes, left=left, color=colour, label=part, **how)
        if numbered:
            said = [str(size) if size else "" for size in sizes]
            axes.bar_label(shown, said, label_type="center", color="white", weight="bold")
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.invert_yaxis()


def above(axes: Axes, columns: int) -> None:
    """Put the legend above the axes."""
    axes.legend(ncols=columns, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)


def changed(
    axes: Axes, words: Sequence[str], before: torch.Tensor, after: torch.Tensor, said: str
) -> None:
    """Draw scores before a step, and the scores after it in front of them."""
    axes.bar(range(len(words)), before, 0.8, color=INK, alpha=0.35, label="score")
    at, lower = torch.arange(len(words)), after < before
    axes.bar(at[~lower], after[~lower], 0.45, color=STRONG, label=said)
    axes.bar(at[lower], after[lower], 0.45, color=WEAK, label=f"{said}: lower")
    axes.set(ylabel="score")
    axes.set_xticks(range(len(words)), words, rotation=50, ha="right", rotation_mode="anchor")
    above(axes, 3)


def tiles(axes: Axes, columns: Sequence[str], rows: Mapping[str, Sequence[str | None]]) -> None:
    """Draw a row of tiles for each label: filled in a colour, or empty."""
    for down, colours in enumerate(rows.values()):
        for at, colour in enumerate(colours):
            axes.add_patch(
                Rectangle(
                    (at - 0.42, down - 0.4),
                    0.84,
                    0.8,
                    facecolor=colour or "none",
                    edgecolor=INK,
                    linewidth=0.6,
                )
            )
    axes.set(xlim=(-0.6, len(columns) - 0.4), ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xticks(range(len(columns)), columns, rotation=50, ha="right", rotation_mode="anchor")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def most(words: Iterable[str], row: torch.Tensor, count: int = 3) -> str:
    """Return a phrase with the words that have the highest numbers of a row."""
    ranked = sorted(zip(row.tolist(), words, strict=True), key=lambda pair: -pair[0])
    return ", ".join(f"“{word}” {number:.2f}" for number, word in ranked[:count])


def listed(words: Iterable[str], marks: torch.Tensor) -> str:
    """Return a phrase with the marked words."""
    return ", ".join(f"“{word}”" for word, mark in zip(words, marks, strict=True) if mark)


@figure(WIDTH, page=HUBKV)
def hubkv_walk_attend(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the attention of both queries in the first head."""
    first, second = walk.weights[0]
    bars(axes, walk.words, {"first query": first, "second query": second}, "attention weight")
    return (
        f"Attention in the first head. First query: {most(walk.words, first)}. "
        f"Second query: {most(walk.words, second)}."
    )


@figure(WIDTH, page=HUBKV)
def hubkv_walk_score(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the scores of both heads."""
    first, second = walk.scores
    bars(axes, walk.words, {"first head": first, "second head": second}, "score")
    return "Scores. " + " ".join(
        f"{name} head: {most(walk.words, row, 5)}."
        for name, row in zip(("First", "Second"), walk.scores, strict=True)
    )


@figure(WIDTH, page=HUBKV)
def hubkv_walk_discount(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the hubs of the first head, and the discounted scores of the rest."""
    before, after, hubs = walk.scores[0], walk.discounted[0], walk.hubs[0]
    changed(axes, walk.words, before, after, "after the discount")
    at = hubs.nonzero().flatten()
    axes.plot(at, before[at] + 0.03, "v", color=STRONG, markersize=6, label="hub")
    axes.set(ylim=(0, 1.15 * float(before.max())))
    above(axes, 4)
    return (
        f"First head. Hubs keep their score: {listed(walk.words, hubs)}. Strongest after the "
        f"discount: {most(walk.words, after, 5)}."
    )


@figure(WIDTH, 1.7, HUBKV)
def hubkv_walk_calibrate(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the selectivity and the weight of each head."""
    names = ("first head", "second head")
    for place, (label, row) in enumerate(
        {"selectivity": walk.selectivity, "weight": walk.weight}.items()
    ):
        at = [head + 0.4 * place - 0.2 for head in range(len(names))]
        shown = axes.barh(at, row, 0.36, color=(INK, STRONG)[place], label=label)
        axes.bar_label(shown, [f"{number:.2f}" for number in row.tolist()], padding=3, color=INK)
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    above(axes, 2)
    return " ".join(
        f"The {name} has selectivity {chosen:.2f} and weighs {weight:.2f}."
        for name, chosen, weight in zip(
            names, walk.selectivity.tolist(), walk.weight.tolist(), strict=True
        )
    )


@figure(WIDTH, page=HUBKV)
def hubkv_walk_gate(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the raw and the refined scores of the first head."""
    before, after = walk.scores[0], walk.gated[0]
    changed(axes, walk.words, before, after, "refined")
    return (
        f"First head. Before: {most(walk.words, before, 5)}. Refined: {most(walk.words, after, 5)}."
    )


@figure(WIDTH, 2.4, HUBKV)
def hubkv_walk_retain(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the words that Top-K and HubKV keep in each head."""
    rows = {
        f"{name}, {method}": mask[head]
        for head, name in enumerate(("first head", "second head"))
        for method, mask in (("Top-K", walk.plain), ("HubKV", walk.kept))
    }
    return retained(axes, walk, rows)


@figure(WIDTH, 1.3, HUBKV)
def hubkv_walk_store(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the entries stored, one head after the other."""
    cache = walk.cache
    stored = [walk.words[at] for at in cache.positions.tolist()]
    starts = cache.offsets.tolist()
    heads = [sum(at >= start for start in starts[1:]) for at in range(len(stored))]
    tiles(axes, stored, {"entries": [COLOURS[head] for head in heads]})
    said = [
        f"head {head}: {', '.join(stored[start:end])}"
        for head, (start, end) in enumerate(pairwise(starts), 1)
    ]
    return f"Stored one head after another: {'; '.join(said)}."


@figure(WIDTH, 1.9, HUBKV)
def hubkv_walk_answer(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the query's output from three caches: the full one, Top-K's and HubKV's."""
    return compared(axes, walk, "HubKV", ("door and key", "cat"))


def retained(axes: Axes, walk: SimpleNamespace, rows: Mapping[str, torch.Tensor]) -> str:
    """Draw which words each row keeps; the protected ones are those of the first head."""
    shown, said = {}, []
    for name, mask in rows.items():
        pairs = zip(mask.tolist(), walk.protected[0].tolist(), strict=True)
        shown[name] = [(INK if spared else STRONG) if stays else None for stays, spared in pairs]
        said.append(f"{name}: {listed(walk.words, mask)}")
    tiles(axes, walk.words, shown)
    return f"What is kept, protected words in grey. {'; '.join(said)}."


def compared(axes: Axes, walk: SimpleNamespace, name: str, channels: Sequence[str]) -> str:
    """Draw the attention output over each cache of a walk, a bar for each channel."""
    kept = {"Top-K": walk.plain, name: walk.kept}
    answers = {"whole cache": walk.whole} | {by: walk.answer(mask) for by, mask in kept.items()}
    height = 0.8 / len(channels)
    for place, channel in enumerate(channels):
        row = [float(answer[place]) for answer in answers.values()]
        at = [cache + height * (place - (len(channels) - 1) / 2) for cache in range(len(row))]
        shown = axes.barh(at, row, 0.9 * height, color=COLOURS[place], label=channel)
        axes.bar_label(shown, [f"{number:.2f}" for number in row], padding=3, color=INK)
    axes.set_yticks(range(len(answers)), list(answers))
    axes.invert_yaxis()
    axes.set(xlabel="output of attention")
    above(axes, len(channels))
    said = []
    for name, answer in answers.items():
        pairs = zip(channels, answer.tolist(), strict=True)
        said.append(f"{name}: {', '.join(f'{channel} {part:.2f}' for channel, part in pairs)}")
    return f"Output of attention. {'; '.join(said)}."


@figure(WIDTH, page=GRAPHKV)
def graphkv_walk_attend(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the attention of both queries in the first head."""
    first, second = walk.weights[0]
    bars(axes, walk.words, {"query of “is”": first, "query of “sad”": second}, "attention weight")
    return (
        f"Attention in the first head. The query of “is”: {most(walk.words, first)}. "
        f"That of “sad”: {most(walk.words, second)}."
    )


@figure(WIDTH, page=GRAPHKV)
def graphkv_walk_score(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the scores of the layer."""
    bars(axes, walk.words, {"mean score of the layer": walk.layer}, "score")
    return f"Scores of the layer: {most(walk.words, walk.layer, 6)}."


@figure(WIDTH, 3.6, GRAPHKV)
def graphkv_walk_graph(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the keys of the first head, and the edges from the source to its neighbours."""
    source = int(walk.sources[0])
    near = walk.near[0].nonzero().flatten().tolist()
    points = walk.keys[0].tolist()
    for at, (x, y) in enumerate(points):
        if x or y:
            colour = STRONG if at == source else WEAK if at in near else INK
            axes.plot([x], [y], "o", color=colour)
            axes.annotate(walk.words[at], (x, y), (5, 5), textcoords="offset points", color=colour)
    said = []
    for at in near:
        (x, y), (there, over), edge = points[source], points[at], float(walk.edges[0, at])
        axes.plot([x, there], [y, over], color=WEAK, linewidth=3 * edge, zorder=0)
        said.append(f"“{walk.words[at]}” at {edge:.2f}")
    axes.axhline(0, color=INK, linewidth=0.5)
    axes.axvline(0, color=INK, linewidth=0.5)
    axes.margins(0.12)
    axes.set(xlabel="praise", ylabel="what is praised")
    return (
        f"Keys of the first head. The source is “{walk.words[source]}”, its neighbours "
        f"{' and '.join(said)}."
    )


@figure(WIDTH, page=GRAPHKV)
def graphkv_walk_decay(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the scores of the layer before and after a round."""
    changed(axes, walk.words, walk.layer, walk.decayed, "after one round")
    return (
        f"Before: {most(walk.words, walk.layer, 5)}. After one round: "
        f"{most(walk.words, walk.decayed, 5)}."
    )


@figure(WIDTH, 1.8, GRAPHKV)
def graphkv_walk_retain(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the words that Top-K and GraphKV keep in the layer."""
    return retained(axes, walk, {"Top-K": walk.plain, "GraphKV": walk.kept[0]})


@figure(WIDTH, 1.3, GRAPHKV)
def graphkv_walk_store(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the entries stored, one head beside the other."""
    heads = [[walk.words[at] for at in row] for row in walk.cache.positions.tolist()]
    stored = [word for head in heads for word in head]
    colours = [COLOURS[at] for at, head in enumerate(heads) for _ in head]
    tiles(axes, stored, {"entries": colours})
    return (
        "Stored: " + "; ".join(f"head {at}: {', '.join(h)}" for at, h in enumerate(heads, 1)) + "."
    )


@figure(WIDTH, 1.9, GRAPHKV)
def graphkv_walk_answer(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the query's output from three caches: the full one, Top-K's and GraphKV's."""
    return compared(axes, walk, "GraphKV", ("praise", "what is praised"))


@figure(WIDTH, page=HEX)
def hex_walk_attend(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the attention of the last query of the span, in both heads."""
    first, second = walk.weights[:, -1]
    words = walk.words[: len(first)]
    bars(axes, words, {"first head": first, "second head": second}, "attention weight")
    return (
        f"Attention of the query of “{words[-1]}”. First head: {most(words, first)}. "
        f"Second head: {most(words, second)}."
    )


@figure(WIDTH, page=HEX)
def hex_walk_score(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the attention mass of each word of the span."""
    words = walk.words[: len(walk.mass)]
    bars(axes, words, {"attention mass": walk.mass})
    return f"Attention mass: {most(words, walk.mass, len(words))}."


@figure(WIDTH, 3.0, HEX)
def hex_walk_retain(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw which entries of the span are kept, and by which mask."""
    words = walk.words[: len(walk.dynamic)]
    rows, said = {}, []
    pairs = zip(words, walk.expander.tolist(), walk.dynamic.tolist(), strict=True)
    for word, channels, whole in pairs:
        rows[word] = [WEAK if whole else STRONG if on else None for on in channels]
        on = ", ".join(str(channel) for channel, marked in enumerate(channels, 1) if marked)
        said.append(f"“{word}” {'all' if whole else on}")
    tiles(axes, [str(channel) for channel in range(1, 1 + walk.expander.shape[1])], rows)
    axes.set(xlabel="channel")
    return (
        "What is kept of each word: orange rows by the heavy-hitter and recent masks, green "
        f"entries by the expander. Channels: {'; '.join(said)}."
    )


@figure(WIDTH, 3.0, HEX)
def hex_walk_channel(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw one channel of the keys, the grid of its codes, and the restored values."""
    words = walk.words[: len(walk.channel)]
    low, step = float(walk.coded.minima), float(walk.coded.steps)
    for code in range(2**walk.config.bits):
        axes.axhline(low + code * step, color=INK, linewidth=0.5, linestyle=":")
        axes.annotate(str(code), (len(words) - 0.4, low + code * step), va="center", color=INK)
    rest = (~walk.kept).nonzero().flatten().tolist()
    axes.plot(range(len(words)), walk.channel, "o", color=INK, fillstyle="none", label="key")
    for label, colour, at in (
        ("kept", STRONG, walk.kept.nonzero().flatten().tolist()),
        ("restored from its code", WEAK, rest),
    ):
        axes.plot(at, walk.restored[at], ".", color=colour, label=label)
    axes.set(xlim=(-0.5, len(words)))
    axes.set_xticks(range(len(words)), words, rotation=50, ha="right", rotation_mode="anchor")
    above(axes, 3)
    told = [
        f"“{words[at]}” {float(walk.channel[at]):.2f} as {int(walk.coded.codes[at])}, restored to "
        f"{float(walk.restored[at]):.2f}"
        for at in rest
    ]
    return f"Codes are steps of {step:.2f} from {low:.2f}: {'; '.join(told)}. The others are kept."


@figure(WIDTH, 1.7, HEX)
def hex_walk_stream(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw which words are compressed and which are buffered, after the prompt and at the end."""
    rows, said = {}, []
    for name, cache in (("after the prompt", walk.prompt), ("six words later", walk.cache)):
        blocks = [block.dynamic.shape[-1] for block in cache.blocks]
        waiting = cache.residual_keys.shape[-2]
        shown = [COLOURS[at] for at, length in enumerate(blocks) for _ in range(length)]
        shown += [INK] * waiting
        rows[name] = [*shown, *[None] * (len(walk.words) - len(shown))]
        lengths = " and ".join(str(length) for length in blocks)
        said.append(f"{name}: compressed blocks of {lengths} words, {waiting} words waiting")
    tiles(axes, walk.words, rows)
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


@figure(WIDTH, 1.4, HEX)
def hex_walk_answer(axes: Axes, walk: SimpleNamespace) -> str:
    """Draw the error of the attention output, with the masks and without."""
    outputs = {"HEX": walk.masked, "quantised alone": walk.unmasked}
    off = {name: float((output - walk.whole).norm()) for name, output in outputs.items()}
    shown = axes.barh(list(off), list(off.values()), 0.6, color=(STRONG, WEAK))
    axes.bar_label(shown, [f"{number:.3f}" for number in off.values()], padding=3, color=INK)
    axes.invert_yaxis()
    axes.set(xlabel="distance from the output over the whole cache")
    said = ", ".join(f"{name} {number:.3f}" for name, number in off.items())
    return f"Distance from the output over the whole cache: {said}."
