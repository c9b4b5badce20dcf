"""The pictures of the three walks, drawn from the examples on their pages.

Green is kept or a source, orange is lowered, coded or a neighbour, grey is protected, waiting or
the rest, pale grey is a score before. Blue and pink are the first and the second head.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import drawing
import torch
from drawing import GRAPHKV, HEX, HUBKV, INK, STRONG, WEAK, Told, figure, legend, listed, most
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

QUERIES = (INK, "none")


def paired(
    axes: Axes,
    words: Sequence[str],
    rows: Mapping[str, torch.Tensor],
    what: str,
    faces: Sequence[str] = drawing.HEADS,
) -> None:
    """Draw bars as `drawing.bars` does, in the colours of two heads or queries."""
    drawing.bars(axes, words, rows, what)
    for shown, face in zip(axes.containers, faces, strict=False):
        plt.setp(shown.get_children(), facecolor=face, edgecolor=INK, linewidth=0.6)
    drawing.above(axes, len(rows))


def attended(
    axes: Axes,
    words: Sequence[str],
    names: Sequence[str],
    weights: torch.Tensor,
    faces: Sequence[str] = QUERIES,
) -> str:
    """Draw attention weights, a bar for each word and query, and return a phrase on each query."""
    rows = dict(zip(names, weights, strict=True))
    paired(axes, words, rows, "attention weight", faces)
    return " ".join(
        f"{name[0].upper()}{name[1:]}: {most(words, row)}." for name, row in rows.items()
    )


def retained(axes: Axes, walk: SimpleNamespace, rows: Mapping[str, torch.Tensor]) -> str:
    """Draw which words each row keeps; the protected ones are those of the first head."""
    shown = {name: drawing.kept_colours(mask, walk.protected[0]) for name, mask in rows.items()}
    drawing.tiles(axes, walk.words, shown)
    legend(drawing.KEPT)
    said = "; ".join(f"{name}: {listed(walk.words, mask)}" for name, mask in rows.items())
    return f"What is kept, protected words in grey. {said}."


def stored(axes: Axes, heads: Sequence[Sequence[str]], how: str) -> str:
    """Draw the words of each head, one head after the other."""
    words = [word for head in heads for word in head]
    shades = [colour for head, colour in zip(heads, drawing.HEADS, strict=True) for _ in head]
    drawing.tiles(axes, words, {"entries": shades})
    legend({"first head": drawing.BLUE, "second head": drawing.PINK})
    said = "; ".join(f"head {at}: {', '.join(head)}" for at, head in enumerate(heads, 1))
    return f"{how}: {said}."


def compared(axes: Axes, walk: SimpleNamespace, name: str, channels: Sequence[str]) -> str:
    """Draw the attention output over each cache of a walk, a panel for each channel."""
    kept = {"Top-K": walk.plain, name: walk.kept}
    answers = {"whole cache": walk.whole} | {by: walk.answer(mask) for by, mask in kept.items()}
    parts = drawing.panels(axes, len(channels), shared=False)
    for place, (channel, part) in enumerate(zip(channels, parts, strict=True)):
        row = [float(answer[place]) for answer in answers.values()]
        drawing.labelled(part, [*answers], {channel: row}, [INK])
        part.set(title=channel, xlabel="output of attention", xlim=(0, 1.15))
        part.tick_params(labelleft=not place)
    said = []
    for name, answer in answers.items():
        pairs = zip(channels, answer.tolist(), strict=True)
        said.append(f"{name}: {', '.join(f'{channel} {part:.2f}' for channel, part in pairs)}")
    return f"Output of attention. {'; '.join(said)}."


@figure(page=HUBKV)
def hubkv_walk_attend(axes: Axes, walk: SimpleNamespace) -> Told:
    queries = ("first query", "second query")
    return (
        f"Attention in the first head. {attended(axes, walk.words, queries, walk.weights[0])}",
        "The first query attends to “red”, “brass” and “key”, the second to “oak”, “door” and "
        "“cat”. The other words get almost nothing.",
    )


@figure(page=HUBKV)
def hubkv_walk_score(axes: Axes, walk: SimpleNamespace) -> Told:
    first, second = walk.scores
    paired(axes, walk.words, {"first head": first, "second head": second}, "score")
    return (
        f"Scores. First head: {most(walk.words, first, 5)}. "
        f"Second head: {most(walk.words, second, 5)}.",
        "Neighbours score high together, such as “red”, “brass” and “key” in the first head. The "
        "scores of the second head are more even.",
    )


@figure(page=HUBKV)
def hubkv_walk_discount(axes: Axes, walk: SimpleNamespace) -> Told:
    before, after, hubs = walk.scores[0], walk.discounted[0], walk.hubs[0]
    drawing.changed(axes, walk.words, before, after, "after the discount")
    at = hubs.nonzero().flatten()
    axes.plot(at, before[at] + 0.03, "v", color=STRONG, markersize=6, label="hub")
    axes.set(ylim=(0, 1.15 * float(before.max())))
    drawing.above(axes, 4)
    return (
        f"First head. Hubs keep their score: {listed(walk.words, hubs)}. Strongest after the "
        f"discount: {most(walk.words, after, 5)}.",
        "The hubs keep their scores and all other scores are halved, so “cat” ranks above “red” "
        "and “brass”.",
    )


@figure(1.7, HUBKV)
def hubkv_walk_calibrate(axes: Axes, walk: SimpleNamespace) -> Told:
    names = ("first head", "second head")
    pairs = torch.stack((walk.selectivity, walk.weight), 1).tolist()
    drawing.labelled(
        axes, ("selectivity", "weight"), dict(zip(names, pairs, strict=True)), drawing.HEADS
    )
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    drawing.above(axes, 2)
    return (
        " ".join(
            f"The {name} has selectivity {chosen:.2f} and weighs {weight:.2f}."
            for name, (chosen, weight) in zip(names, pairs, strict=True)
        ),
        "The first head is more selective than the mean of the layer, and its weight is above "
        "1. The second head is less selective, and its weight is below 1.",
    )


@figure(page=HUBKV)
def hubkv_walk_gate(axes: Axes, walk: SimpleNamespace) -> Told:
    before, after, protected = walk.scores[0], walk.refined[0], walk.protected[0]
    drawing.changed(axes, walk.words, before, after, "refined")
    at = protected.nonzero().flatten()
    axes.bar(at, after[at], 0.45, color=INK, label="protected: 1")
    axes.set(ylim=(0, 1.15 * float(after[~protected].max())))
    drawing.above(axes, 4)
    return (
        f"First head. Before: {most(walk.words, before, 5)}. Refined: "
        f"{most(walk.words, after, 7)}.",
        "“cat” ranks above “red” and “brass”, though the gate applies only a part of the discount. "
        "Bars of protected words leave the picture: their score is 1.",
    )


@figure(2.4, HUBKV)
def hubkv_walk_retain(axes: Axes, walk: SimpleNamespace) -> Told:
    rows = {
        f"{name}, {method}": mask[head]
        for head, name in enumerate(("first head", "second head"))
        for method, mask in (("Top-K", walk.plain), ("HubKV", walk.kept))
    }
    return (
        retained(axes, walk, rows),
        "HubKV keeps “cat” where Top-K keeps “red”. The two heads keep different numbers of words, "
        "because all entries of the layer compete.",
    )


@figure(1.3, HUBKV)
def hubkv_walk_store(axes: Axes, walk: SimpleNamespace) -> Told:
    sizes = walk.cache.offsets.diff().tolist()
    heads = [[walk.words[at] for at in part] for part in walk.cache.positions.split(sizes)]
    return (
        stored(axes, heads, "Stored one head after another"),
        f"The {sizes[0]} entries of the first head come first, then the {sizes[1]} of the second. "
        "Heads of different lengths need no padding.",
    )


@figure(1.9, HUBKV)
def hubkv_walk_answer(axes: Axes, walk: SimpleNamespace) -> Told:
    return (
        compared(axes, walk, "HubKV", ("door and key", "cat")),
        "Top-K has evicted “cat”, so its output has no cat. HubKV's output has both parts, close "
        "to those of the whole cache.",
    )


@figure(page=GRAPHKV)
def graphkv_walk_attend(axes: Axes, walk: SimpleNamespace) -> Told:
    queries = ("query of “is”", "query of “sad”")
    return (
        f"Attention in the first head. {attended(axes, walk.words, queries, walk.weights[0])}",
        "“love”, “like” and “great”, three words for one thought, get more than half of the "
        "attention of both queries.",
    )


@figure(page=GRAPHKV)
def graphkv_walk_score(axes: Axes, walk: SimpleNamespace) -> Told:
    paired(axes, walk.words, {"mean score of the layer": walk.layer}, "score", [INK])
    return (
        f"Scores of the layer: {most(walk.words, walk.layer, 6)}.",
        "The three words of praise have the highest scores. A ranking keeps them all before it "
        "keeps what is praised.",
    )


@figure(3.6, GRAPHKV)
def graphkv_walk_graph(axes: Axes, walk: SimpleNamespace) -> Told:
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
    legend({"source": STRONG, "neighbour, and its edge": WEAK, "other": INK})
    return (
        f"Keys of the first head. The source is “{walk.words[source]}”, its neighbours, by the "
        f"edges of both heads, {' and '.join(said)}.",
        f"The neighbours are the words whose keys point most nearly in the direction of "
        f"“{walk.words[source]}”. Only they lose score in the next step.",
    )


@figure(page=GRAPHKV)
def graphkv_walk_decay(axes: Axes, walk: SimpleNamespace) -> Told:
    drawing.changed(axes, walk.words, walk.layer, walk.decayed, "after one round")
    return (
        f"Before: {most(walk.words, walk.layer, 5)}. After one round: "
        f"{most(walk.words, walk.decayed, 5)}.",
        "The source “love” keeps its score and its two neighbours lose most of theirs, so “film” "
        "and “music” rank above them.",
    )


@figure(1.8, GRAPHKV)
def graphkv_walk_retain(axes: Axes, walk: SimpleNamespace) -> Told:
    return (
        retained(axes, walk, {"Top-K": walk.plain, "GraphKV": walk.kept[0]}),
        "Top-K keeps three words of praise. GraphKV keeps one of them, and two words for what is "
        "praised.",
    )


@figure(1.3, GRAPHKV)
def graphkv_walk_store(axes: Axes, walk: SimpleNamespace) -> Told:
    heads = [[walk.words[at] for at in row] for row in walk.cache.positions.tolist()]
    return (
        stored(axes, heads, "Stored"),
        "Both heads keep the same words, so the cache is a dense tensor with one length for all "
        "heads.",
    )


@figure(1.9, GRAPHKV)
def graphkv_walk_answer(axes: Axes, walk: SimpleNamespace) -> Told:
    return (
        compared(axes, walk, "GraphKV", ("praise", "what is praised")),
        "Top-K's output is praise alone. GraphKV's output also has what is praised, even more of "
        "it than the output of the whole cache.",
    )


@figure(page=HEX)
def hex_walk_attend(axes: Axes, walk: SimpleNamespace) -> Told:
    words, asking = walk.words[: walk.weights.shape[-1]], 9
    names = ("first head", "second head")
    said = attended(axes, words, names, walk.weights[:, asking], drawing.HEADS)
    return (
        f"Attention of the query of “{words[asking]}”. {said}",
        f"Both heads look at the sink “{words[0]}”. The first head also finds what is Ben's, the "
        "second the things. Words after the query are not seen.",
    )


@figure(page=HEX)
def hex_walk_score(axes: Axes, walk: SimpleNamespace) -> Told:
    words = walk.words[: len(walk.mass)]
    paired(axes, words, {"attention mass": walk.mass}, "", [INK])
    return (
        f"Attention mass: {most(words, walk.mass, len(words))}.",
        f"All queries look at “{words[0]}”, the sink, so its mass is the largest by far. Early "
        "words have an advantage, because more queries see them.",
    )


@figure(4.2, HEX)
def hex_walk_retain(axes: Axes, walk: SimpleNamespace) -> Told:
    names, rows, said = [], [], []
    for word, kept, whole in zip(walk.words, walk.expander, walk.dynamic.tolist(), strict=False):
        rows.append([STRONG if whole or on else WEAK for on in kept])
        names.append(f"{word}, whole row" if whole else word)
        channels = drawing.numbers((kept.nonzero().flatten() + 1).tolist(), "d")
        said.append(f"“{word}” {'all' if whole else channels}")
    columns = [str(channel) for channel in range(1, 1 + walk.expander.shape[1])]
    drawing.tiles(axes, columns, dict(enumerate(rows)))
    axes.set_xticks(range(len(columns)), columns, rotation=0, ha="center")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="channel: 1 to 8 of the first head, 9 to 16 of the second")
    legend({"kept": STRONG, "becomes a code": WEAK})
    return (
        "What is kept of each word: whole rows by the heavy-hitter and recent masks, the other "
        f"entries by the expander. Channels: {'; '.join(said)}.",
        "The expander keeps equally many entries of every word and every channel. The sink and the "
        "last word are kept whole.",
    )


@figure(3.0, HEX)
def hex_walk_channel(axes: Axes, walk: SimpleNamespace) -> Told:
    words = walk.words[: len(walk.channel)]
    low, step = float(walk.coded.minima), float(walk.coded.steps)
    for code in range(2**walk.config.bits):
        axes.axhline(low + code * step, color=INK, linewidth=0.5, linestyle=":")
        axes.annotate(str(code), (len(words) - 0.4, low + code * step), va="center", color=INK)
    restored, top = walk.by_channel[0, :, 0], low + 9 * step
    shown = walk.channel.clamp(max=top)
    axes.plot(range(len(words)), shown, "o", color=INK, fillstyle="none", label="key")
    kept, rest = (mask.nonzero().flatten().tolist() for mask in (walk.kept, ~walk.kept))
    axes.plot(kept, shown[kept], ".", color=STRONG, label="kept")
    axes.plot(rest, restored[rest], ".", color=WEAK, label="restored from its code")
    for at in (walk.channel > top).nonzero().flatten().tolist():
        far = f"{float(walk.channel[at]):.0f}, far above"
        axes.annotate(far, (at + 0.3, top), va="center", color=INK)
    axes.set(xlim=(-0.5, len(words)))
    drawing.under(axes, words)
    drawing.above(axes, 3)
    told = "; ".join(
        f"“{words[at]}” {float(walk.channel[at]):.2f} as {int(walk.coded.codes[at])}, restored to "
        f"{float(restored[at]):.2f}"
        for at in rest
    )
    return (
        f"Codes are steps of {step:.2f} from {low:.2f}: {told}. The others are kept.",
        "Kept keys are exact, the sink among them. Each other key becomes the nearest code, so "
        f"it is wrong by at most half a step, {step / 2:.2f}.",
    )


@figure(1.7, HEX)
def hex_walk_stream(axes: Axes, walk: SimpleNamespace) -> Told:
    rows, texts, said = {}, [], []
    for name, cache in (("After the prompt", walk.prompt), ("14 words later", walk.cache)):
        blocks = [block.dynamic.shape[-1] for block in cache.blocks]
        waiting = cache.residual_keys.shape[-2]
        texts.append([str(at) for at, length in enumerate(blocks, 1) for _ in range(length)])
        shown = [WEAK] * sum(blocks) + [INK] * waiting
        rows[name.lower()] = [*shown, *[None] * (len(walk.words) - len(shown))]
        lengths = " and ".join(map(str, blocks))
        said.append(f"{name}: compressed blocks of {lengths} words, {waiting} words waiting")
    drawing.tiles(axes, walk.words, rows, texts, weight="bold", size=7)
    ends = (0, 15, 17, 31)
    axes.set_xticks(ends, [walk.words[at] for at in ends])
    legend({"compressed, with the number of its block": WEAK, "waits": INK})
    return (
        f"{'; '.join(said)}.",
        f"Words wait in full precision until they fill a block of {walk.config.block}. The block "
        "is then compressed, and waiting starts anew.",
    )


@figure(1.9, HEX)
def hex_walk_answer(axes: Axes, walk: SimpleNamespace) -> Told:
    no_expander, no_rows = {"density": 0.0}, {"heavy": 0.0, "recent": 0}
    off = {
        "HEX": walk.error(),
        "no expander": walk.error(**no_expander),
        "no whole rows": walk.error(**no_rows),
        "codes alone": walk.error(**no_expander, **no_rows),
    }
    drawing.labelled(axes, [*off], {"error": [*off.values()]}, [INK], ".3f")
    axes.set(xlabel="distance from the output over the whole cache")
    said = ", ".join(f"{name} {number:.3f}" for name, number in off.items())
    return (
        f"Distance from the output over the whole cache: {said}.",
        "Both masks make the error of this toy smaller, the whole rows more than the expander. "
        f"Together they reduce it to {off['HEX'] / off['codes alone']:.0%}.",
    )
