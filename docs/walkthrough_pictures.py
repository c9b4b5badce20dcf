"""The pictures of the three walks, drawn from the examples on their pages."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import drawing
import torch
from drawing import COLOURS, GRAPHKV, HEX, HUBKV, INK, STRONG, WEAK, figure, listed, most, numbers
from matplotlib.axes import Axes


def attended(axes: Axes, words: Sequence[str], names: Sequence[str], weights: torch.Tensor) -> str:
    """Draw attention weights, a bar for each word and query, and return a phrase on each query."""
    rows = dict(zip(names, weights, strict=True))
    drawing.bars(axes, words, rows, "attention weight")
    return " ".join(
        f"{name[0].upper()}{name[1:]}: {most(words, row)}." for name, row in rows.items()
    )


def retained(axes: Axes, walk: SimpleNamespace, rows: Mapping[str, torch.Tensor]) -> str:
    """Draw which words each row keeps; the protected ones are those of the first head."""
    shown = {name: drawing.kept_colours(mask, walk.protected[0]) for name, mask in rows.items()}
    drawing.tiles(axes, walk.words, shown)
    said = "; ".join(f"{name}: {listed(walk.words, mask)}" for name, mask in rows.items())
    return f"What is kept, protected words in grey. {said}."


def stored(axes: Axes, heads: Sequence[Sequence[str]], how: str) -> str:
    """Draw the words of each head, one head after the other."""
    words = [word for head in heads for word in head]
    shades = [colour for head, colour in zip(heads, COLOURS, strict=False) for _ in head]
    drawing.tiles(axes, words, {"entries": shades})
    said = "; ".join(f"head {at}: {', '.join(head)}" for at, head in enumerate(heads, 1))
    return f"{how}: {said}."


def compared(axes: Axes, walk: SimpleNamespace, name: str, channels: Sequence[str]) -> str:
    """Draw the attention output over each cache of a walk, a bar for each channel."""
    kept = {"Top-K": walk.plain, name: walk.kept}
    answers = {"whole cache": walk.whole} | {by: walk.answer(mask) for by, mask in kept.items()}
    drawing.labelled(
        axes,
        [*answers],
        {
            channel: [float(answer[place]) for answer in answers.values()]
            for place, channel in enumerate(channels)
        },
    )
    axes.set(xlabel="output of attention")
    drawing.above(axes, len(channels))
    said = []
    for name, answer in answers.items():
        pairs = zip(channels, answer.tolist(), strict=True)
        said.append(f"{name}: {', '.join(f'{channel} {part:.2f}' for channel, part in pairs)}")
    return f"Output of attention. {'; '.join(said)}."


@figure(page=HUBKV)
def hubkv_walk_attend(axes: Axes, walk: SimpleNamespace) -> str:
    queries = ("first query", "second query")
    return f"Attention in the first head. {attended(axes, walk.words, queries, walk.weights[0])}"


@figure(page=HUBKV)
def hubkv_walk_score(axes: Axes, walk: SimpleNamespace) -> str:
    first, second = walk.scores
    drawing.bars(axes, walk.words, {"first head": first, "second head": second}, "score")
    return (
        f"Scores. First head: {most(walk.words, first, 5)}. "
        f"Second head: {most(walk.words, second, 5)}."
    )


@figure(page=HUBKV)
def hubkv_walk_discount(axes: Axes, walk: SimpleNamespace) -> str:
    before, after, hubs = walk.scores[0], walk.discounted[0], walk.hubs[0]
    drawing.changed(axes, walk.words, before, after, "after the discount")
    at = hubs.nonzero().flatten()
    axes.plot(at, before[at] + 0.03, "v", color=STRONG, markersize=6, label="hub")
    axes.set(ylim=(0, 1.15 * float(before.max())))
    drawing.above(axes, 4)
    return (
        f"First head. Hubs keep their score: {listed(walk.words, hubs)}. Strongest after the "
        f"discount: {most(walk.words, after, 5)}."
    )


@figure(1.7, HUBKV)
def hubkv_walk_calibrate(axes: Axes, walk: SimpleNamespace) -> str:
    names = ("first head", "second head")
    rows = {"selectivity": walk.selectivity.tolist(), "weight": walk.weight.tolist()}
    drawing.labelled(axes, names, rows, (INK, STRONG))
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    drawing.above(axes, 2)
    return " ".join(
        f"The {name} has selectivity {chosen:.2f} and weighs {weight:.2f}."
        for name, chosen, weight in zip(names, *rows.values(), strict=True)
    )


@figure(page=HUBKV)
def hubkv_walk_gate(axes: Axes, walk: SimpleNamespace) -> str:
    before, after = walk.scores[0], walk.gated[0]
    drawing.changed(axes, walk.words, before, after, "refined")
    return (
        f"First head. Before: {most(walk.words, before, 5)}. Refined: {most(walk.words, after, 5)}."
    )


@figure(2.4, HUBKV)
def hubkv_walk_retain(axes: Axes, walk: SimpleNamespace) -> str:
    rows = {
        f"{name}, {method}": mask[head]
        for head, name in enumerate(("first head", "second head"))
        for method, mask in (("Top-K", walk.plain), ("HubKV", walk.kept))
    }
    return retained(axes, walk, rows)


@figure(1.3, HUBKV)
def hubkv_walk_store(axes: Axes, walk: SimpleNamespace) -> str:
    sizes = walk.cache.offsets.diff().tolist()
    heads = [[walk.words[at] for at in part] for part in walk.cache.positions.split(sizes)]
    return stored(axes, heads, "Stored one head after another")


@figure(1.9, HUBKV)
def hubkv_walk_answer(axes: Axes, walk: SimpleNamespace) -> str:
    return compared(axes, walk, "HubKV", ("door and key", "cat"))


@figure(page=GRAPHKV)
def graphkv_walk_attend(axes: Axes, walk: SimpleNamespace) -> str:
    queries = ("query of “is”", "query of “sad”")
    return f"Attention in the first head. {attended(axes, walk.words, queries, walk.weights[0])}"


@figure(page=GRAPHKV)
def graphkv_walk_score(axes: Axes, walk: SimpleNamespace) -> str:
    drawing.bars(axes, walk.words, {"mean score of the layer": walk.layer}, "score")
    return f"Scores of the layer: {most(walk.words, walk.layer, 6)}."


@figure(3.6, GRAPHKV)
def graphkv_walk_graph(axes: Axes, walk: SimpleNamespace) -> str:
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
        edge = float(walk.edges[0, at])
        ends = zip(points[source], points[at], strict=True)
        axes.plot(*ends, color=WEAK, linewidth=3 * edge, zorder=0)
        said.append(f"“{walk.words[at]}” at {edge:.2f}")
    axes.axhline(0, color=INK, linewidth=0.5)
    axes.axvline(0, color=INK, linewidth=0.5)
    axes.margins(0.12)
    axes.set(xlabel="praise", ylabel="what is praised")
    return (
        f"Keys of the first head. The source is “{walk.words[source]}”, its neighbours "
        f"{' and '.join(said)}."
    )


@figure(page=GRAPHKV)
def graphkv_walk_decay(axes: Axes, walk: SimpleNamespace) -> str:
    drawing.changed(axes, walk.words, walk.layer, walk.decayed, "after one round")
    return (
        f"Before: {most(walk.words, walk.layer, 5)}. After one round: "
        f"{most(walk.words, walk.decayed, 5)}."
    )


@figure(1.8, GRAPHKV)
def graphkv_walk_retain(axes: Axes, walk: SimpleNamespace) -> str:
    return retained(axes, walk, {"Top-K": walk.plain, "GraphKV": walk.kept[0]})


@figure(1.3, GRAPHKV)
def graphkv_walk_store(axes: Axes, walk: SimpleNamespace) -> str:
    heads = [[walk.words[at] for at in row] for row in walk.cache.positions.tolist()]
    return stored(axes, heads, "Stored")


@figure(1.9, GRAPHKV)
def graphkv_walk_answer(axes: Axes, walk: SimpleNamespace) -> str:
    return compared(axes, walk, "GraphKV", ("praise", "what is praised"))


@figure(page=HEX)
def hex_walk_attend(axes: Axes, walk: SimpleNamespace) -> str:
    words = walk.words[: walk.weights.shape[-1]]
    said = attended(axes, words, ("first head", "second head"), walk.weights[:, -1])
    return f"Attention of the query of “{words[-1]}”. {said}"


@figure(page=HEX)
def hex_walk_score(axes: Axes, walk: SimpleNamespace) -> str:
    words = walk.words[: len(walk.mass)]
    drawing.bars(axes, words, {"attention mass": walk.mass})
    return f"Attention mass: {most(words, walk.mass, len(words))}."


@figure(3.0, HEX)
def hex_walk_retain(axes: Axes, walk: SimpleNamespace) -> str:
    rows, said = {}, []
    for word, kept, whole in zip(walk.words, walk.expander, walk.dynamic.tolist(), strict=False):
        rows[word] = [WEAK if whole else STRONG if on else None for on in kept]
        channels = numbers((kept.nonzero().flatten() + 1).tolist(), "d")
        said.append(f"“{word}” {'all' if whole else channels}")
    drawing.tiles(axes, [str(channel) for channel in range(1, 1 + walk.expander.shape[1])], rows)
    axes.set(xlabel="channel")
    return (
        "What is kept of each word: orange rows by the heavy-hitter and recent masks, green "
        f"entries by the expander. Channels: {'; '.join(said)}."
    )


@figure(3.0, HEX)
def hex_walk_channel(axes: Axes, walk: SimpleNamespace) -> str:
    words = walk.words[: len(walk.channel)]
    low, step = float(walk.coded.minima), float(walk.coded.steps)
    for code in range(2**walk.config.bits):
        axes.axhline(low + code * step, color=INK, linewidth=0.5, linestyle=":")
        axes.annotate(str(code), (len(words) - 0.4, low + code * step), va="center", color=INK)
    axes.plot(range(len(words)), walk.channel, "o", color=INK, fillstyle="none", label="key")
    kept, rest = (mask.nonzero().flatten().tolist() for mask in (walk.kept, ~walk.kept))
    axes.plot(kept, walk.restored[kept], ".", color=STRONG, label="kept")
    axes.plot(rest, walk.restored[rest], ".", color=WEAK, label="restored from its code")
    axes.set(xlim=(-0.5, len(words)))
    drawing.under(axes, words)
    drawing.above(axes, 3)
    told = "; ".join(
        f"“{words[at]}” {float(walk.channel[at]):.2f} as {int(walk.coded.codes[at])}, restored to "
        f"{float(walk.restored[at]):.2f}"
        for at in rest
    )
    return f"Codes are steps of {step:.2f} from {low:.2f}: {told}. The others are kept."


@figure(1.7, HEX)
def hex_walk_stream(axes: Axes, walk: SimpleNamespace) -> str:
    rows, said = {}, []
    for name, cache in (("After the prompt", walk.prompt), ("six words later", walk.cache)):
        blocks = [block.dynamic.shape[-1] for block in cache.blocks]
        waiting = cache.residual_keys.shape[-2]
        shown = [COLOURS[at] for at, length in enumerate(blocks) for _ in range(length)]
        shown += [INK] * waiting
        rows[name.lower()] = [*shown, *[None] * (len(walk.words) - len(shown))]
        lengths = " and ".join(map(str, blocks))
        said.append(f"{name}: compressed blocks of {lengths} words, {waiting} words waiting")
    drawing.tiles(axes, walk.words, rows)
    return f"{'; '.join(said)}."


@figure(1.4, HEX)
def hex_walk_answer(axes: Axes, walk: SimpleNamespace) -> str:
    outputs = {"HEX": walk.masked, "quantised alone": walk.unmasked}
    off = {name: float((output - walk.whole).norm()) for name, output in outputs.items()}
    drawing.labelled(axes, [*off], {"error": [*off.values()]}, [(STRONG, WEAK)], ".3f")
    axes.set(xlabel="distance from the output over the whole cache")
    said = ", ".join(f"{name} {number:.3f}" for name, number in off.items())
    return f"Distance from the output over the whole cache: {said}."
