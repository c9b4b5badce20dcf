"""The pictures of the method pages, drawn from the examples of the walks or of the page itself.

Green is kept, a hub or a source, orange is discounted, coded or a neighbour, grey is protected or
the rest, pale grey is a score before. Blue and pink are the first and the second head.
"""

from types import SimpleNamespace

import drawing
import torch
from drawing import GRAPHKV, HEX, HUBKV, INK, STRONG, WEAK, Told, figure, legend, listed
from matplotlib.axes import Axes

import reference as kv


@figure(3.0, HUBKV)
def hubkv_window(axes: Axes, walk: SimpleNamespace) -> Told:
    scores, hubs = walk.scores[0], walk.hubs[0]
    marks = zip(hubs.tolist(), walk.protected[0].tolist(), strict=True)
    colours = [INK if spared else STRONG if hub else WEAK for hub, spared in marks]
    axes.bar(range(len(scores)), scores, color=colours)
    top = float(scores.max())
    for row, word in enumerate(("brass", "key", "cat")):
        at, height = walk.words.index(word), top * (1.15 + 0.14 * row)
        colour = STRONG if hubs[at] else WEAK
        axes.plot([at - 2.4, at + 2.4], [height] * 2, color=colour, linewidth=2)
        axes.plot([at], [height], "o", color=colour)
        said = f"window of “{word}”: {'a hub' if hubs[at] else '“key” is higher'}"
        axes.annotate(said, (at + 2.7, height), va="center", color=colour, fontsize=9)
    axes.set(ylabel="score", xlim=(-0.7, len(scores) + 1.5))
    legend({"hub": STRONG, "discounted": WEAK, "protected": INK})
    drawing.under(axes, walk.words)
    return (
        f"Scores of the walk's first head. Lines show how far a word looks, two places to either "
        f"side. “key” and “cat” are the highest of theirs, “brass” is not. Hubs in green: "
        f"{listed(walk.words, hubs)}.",
        "Each line is the window of the word at its dot. A word is a hub where nothing in its "
        "window is higher. The scores of all others, except the protected words, are multiplied "
        "by γ.",
    )


@figure(2.6, HUBKV)
def hubkv_selectivity(axes: Axes, walk: SimpleNamespace) -> Told:
    said = []
    for head, (name, colour) in enumerate(
        zip(("first head", "second head"), drawing.HEADS, strict=True)
    ):
        inside = walk.scores[head][~walk.protected[head]].sort(descending=True).values
        chosen, weight = float(walk.selectivity[head]), float(walk.weight[head])
        label = f"{name}: selectivity {chosen:.2f}, weight {weight:.2f}"
        axes.plot(range(1, len(inside) + 1), inside, "o-", color=colour, label=label)
        axes.axhline(float(inside.mean()), color=colour, linewidth=1, linestyle=":")
        said.append(f"{label}; highest score {inside[0]:.2f}, lowest {inside[-1]:.2f}")
    axes.set(xlabel="rank of the word in its head", ylabel="score", ylim=(0, None))
    axes.legend()
    return (
        f"Scores of both heads of the walk, sorted, with their means dotted. {'. '.join(said)}.",
        "Selectivity is how far a curve strays from its mean, in shares of the mean. The steep "
        "head gains weight, the flat one loses weight.",
    )


@figure(3.0, HUBKV)
def hubkv_ratios(axes: Axes, walk: SimpleNamespace) -> Told:
    ratios = torch.linspace(0, 1, 101)
    rows = torch.stack([kv.hubkv_refine(walk.scores, float(r), walk.protected)[0] for r in ratios])
    for word, colour in (("key", STRONG), ("door", STRONG), ("red", WEAK), ("cat", STRONG)):
        row = rows[:, walk.words.index(word)]
        axes.plot(ratios, row, color=colour, linewidth=2)
        at = (1.01, float(row[-1]))
        axes.annotate(f"“{word}”", at, va="center", color=colour, annotation_clip=False)
    red, cat = (rows[:, walk.words.index(word)] for word in ("red", "cat"))
    crossing = float(ratios[(cat > red).nonzero()[0]])
    axes.axvline(crossing, color=INK, linewidth=1, linestyle=":")
    axes.set(xlabel="share of the cache removed, r", ylabel="refined score", xlim=(0, 1.1))
    axes.set(ylim=(0, None))
    legend({"hub": STRONG, "discounted": WEAK})
    return (
        "Refined scores of four words of the walk against the ratio. The hubs “key”, “door” and "
        f"“cat” rise a little with their head's weight, “red” falls. “cat” passes “red” at a ratio "
        f"of {crossing:.2f}.",
        f"The more is removed, the more the discount counts: from a ratio of {crossing:.2f} on "
        "“cat” ranks above “red”.",
    )


@figure(2.6, "hubkv/coverage.md")
def hubkv_coverage(axes: Axes, page: SimpleNamespace) -> Told:
    said = []
    parts = drawing.panels(axes, 2)
    for part, pair in zip(parts, ((2, 3), (2, 8)), strict=True):
        covers = page.weights[:, list(pair)]
        at = range(len(covers))
        part.bar(at, covers.amax(1), color=STRONG, label="counted")
        part.bar(at, covers.amin(1), 0.4, color=WEAK, label="covered twice, counted once")
        said.append(f"tokens {pair[0]} and {pair[1]}: {page.worth(*pair):.2f}")
        part.set_title(f"{said[-1]} of {float(page.scores[list(pair)].sum()):.1f}")
        part.set(xlabel="place", xticks=range(0, len(covers), 2))
    entries = parts[0].get_legend_handles_labels()
    parts[0].figure.legend(*entries, loc="outside lower center", ncols=2)
    return (
        f"Cover of each place by two pairs of tokens; its sum is what a pair is worth: "
        f"{'; '.join(said)}.",
        "Neighbours cover the same places, which count once, so the distant pair is worth more.",
    )


@figure(page="hubkv/nms.md")
def hubkv_suppressed(axes: Axes, page: SimpleNamespace) -> Told:
    after = kv.nms(page.scores)
    words = [str(at) for at in range(len(after))]
    drawing.changed(axes, words, page.scores, after, "after suppression")
    for end in (2.5, 5.5, 8.5):
        axes.axvline(end, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(words)), words, rotation=0, ha="center")
    axes.set(xlabel="token; dotted lines end a segment")
    picks = kv.ranking(after)[:2].tolist()
    return (
        "Scores of 12 tokens before and after suppression. Before: "
        f"{drawing.most(words, page.scores)}. After: {drawing.most(words, after)}.",
        f"Only the peaks {picks[0]} and {picks[1]} keep their score, so the second pick leaves the "
        "first segment.",
    )


@figure(3.6, GRAPHKV)
def graphkv_angles(axes: Axes, walk: SimpleNamespace) -> Told:
    source = int(walk.sources[0])
    cosines = kv.edges(walk.keys[0], walk.sources)[0]
    said = []
    for at, (x, y) in enumerate(walk.keys[0].tolist()):
        if not (x or y):
            continue
        colour = STRONG if at == source else WEAK if walk.near[0, at] else INK
        axes.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour})
        text = f"{walk.words[at]}, {cosines[at]:.2f}"
        axes.annotate(text, (1.05 * x, 1.05 * y), ha="left" if x > 0.25 else "right", color=colour)
        said.append(f"“{walk.words[at]}” {cosines[at]:.2f}")
    axes.set(xlabel="praise", ylabel="what is praised", xlim=(-3.2, 4.2), ylim=(-0.2, 3.1))
    axes.set_aspect("equal")
    legend({"source": STRONG, "neighbour": WEAK, "other": INK})
    return (
        f"Keys of the walk's first head as arrows from the origin, each with the cosine of its "
        f"angle to the source “{walk.words[source]}”: {', '.join(said)}.",
        "An edge is the cosine of an angle. The keys that point most nearly in the direction of "
        "the source are its neighbours, however long they are.",
    )


@figure(2.4, "graphkv/decay.md")
def graphkv_frames(axes: Axes, page: SimpleNamespace) -> Told:
    said, senders = [], page.scores.argsort(descending=True)[:2].sort().values.tolist()
    hit = page.reached.any(0)
    colours = [STRONG if t in senders else WEAK if hit[t] else INK for t in range(len(hit))]
    frames = zip(("before", "after one round", "after two"), drawing.panels(axes, 3), strict=True)
    for rounds, (title, part) in enumerate(frames):
        scores = kv.decay(page.scores, page.weights, page.reached, rounds=rounds)
        part.bar(range(1, 8), page.scores, color=INK, alpha=drawing.PALE)
        part.bar(range(1, 8), scores, color=colours)
        part.set_title(title)
        part.set_xticks(range(1, 8))
        part.set(ylim=(0, 1.9), xlabel="token")
        for row, target in page.reached.nonzero().tolist() if rounds else ():
            source = senders[row]
            bend = -0.5 if target > source else 0.5
            arrow = {"arrowstyle": "->", "color": STRONG, "connectionstyle": f"arc3,rad={bend}"}
            end, start = ((x + 1, float(page.scores[x])) for x in (target, source))
            part.annotate("", end, start, arrowprops=arrow)
        said.append(f"{title}, tokens 3, 5 and 6 have {drawing.numbers(scores[hit].tolist())}")
    legend({"source": STRONG, "neighbour": WEAK, "other": INK, "score before": "#d3d6d8"})
    return (
        f"Scores of seven tokens in three frames. Tokens 4 and 7 send signals: {'; '.join(said)}.",
        "Sources keep their score. Token 6 is a neighbour of both and loses most. Every round "
        "takes the same share again.",
    )


@figure(2.8, GRAPHKV)
def graphkv_plane(axes: Axes, walk: SimpleNamespace) -> Told:
    frames = (("Top-K", walk.layer, walk.plain), ("GraphKV", walk.decayed, walk.kept[0]))
    for part, (name, scores, kept) in zip(drawing.panels(axes, 2), frames, strict=True):
        for at, (x, y) in enumerate(walk.keys[0].tolist()):
            if x or y:
                spared = bool(walk.protected[0, at])
                colour = INK if spared or not kept[at] else STRONG
                fill = colour if kept[at] else "none"
                size = 60 if spared else 600 * float(scores[at]) + 12
                part.scatter([x], [y], size, facecolor=fill, edgecolor=colour)
                at_side = {"xytext": (11, 0), "textcoords": "offset points", "va": "center"}
                part.annotate(walk.words[at], (x, y), color=colour, **at_side)
        part.set_title(f"kept by {name}")
        part.set(xlabel="praise", xlim=(-2.9, 4.9), ylim=(-0.3, 3.1))
    legend(drawing.KEPT)
    return (
        f"Keys of the walk's first head, filled if kept. Top-K: {listed(walk.words, walk.plain)}. "
        f"GraphKV: {listed(walk.words, walk.kept[0])}.",
        "The keys that Top-K keeps all point one way. After the decay the kept keys point in "
        "different directions.",
    )


@figure(2.8, HEX)
def hex_bipartite(axes: Axes, walk: SimpleNamespace) -> Told:
    words, mask, chosen = walk.words[:8], kv.expander_mask(8, 8, 0.375), 1
    shared = (mask & mask[chosen]).any(1)
    for token, channel in mask.nonzero().tolist():
        mine = token == chosen
        colour = STRONG if mine else WEAK if mask[chosen, channel] else INK
        (line,) = axes.plot([token, channel], [1, 0], color=colour, zorder=mine)
        line.set(linewidth=2.2 if mine else 1, alpha=0.5 if colour == INK else 1)
    for at, word in enumerate(words):
        colour = STRONG if at == chosen else WEAK if shared[at] else INK
        axes.plot([at], [1], "o", color=colour)
        axes.annotate(word, (at, 1.08), ha="center", color=colour)
        axes.plot([at], [0], "s", color=STRONG if mask[chosen, at] else INK)
        axes.annotate(str(at + 1), (at, -0.18), ha="center", color=INK)
    axes.set(ylim=(-0.25, 1.22), xlim=(-0.6, 7.6), xticks=())
    drawing.two_levels(axes)
    legend({f"of “{words[chosen]}”": STRONG, "two steps away": WEAK, "the rest": INK})
    own = [channel + 1 for channel in mask[chosen].nonzero().flatten().tolist()]
    others = int(shared.sum()) - 1
    return (
        f"Eight tokens above, eight channels below, an edge for each kept entry, three at every "
        f"node. The edges of “{words[chosen]}” end in channels {own}; orange edges lead from there "
        f"to {others} other tokens.",
        f"Every node has three edges. Two steps are enough to get from “{words[chosen]}” to "
        f"{others} of the {len(words) - 1} other tokens.",
    )


@figure(2.6, HEX)
def hex_bad_mask(axes: Axes, _walk: SimpleNamespace) -> Told:
    half = ~torch.eye(4, dtype=torch.bool)
    masks = {"expander": kv.expander_mask(8, 8, 0.375), "two halves": torch.block_diag(half, half)}
    values = {name: torch.linalg.svdvals(mask.double()) for name, mask in masks.items()}
    ranks = [str(rank) for rank in range(1, 9)]
    drawing.bars(axes, ranks, values, "size")
    bound = kv.ramanujan_bound(3, 3)
    axes.axhline(bound, color=INK, linewidth=1, linestyle="--", label="Ramanujan bound")
    axes.set_xticks(range(8), ranks, rotation=0, ha="center")
    axes.set(xlabel="singular value, largest first")
    drawing.above(axes, 3)
    seconds = ", ".join(f"{name} {row[1]:.2f}" for name, row in values.items())
    return (
        f"Singular values of two masks of 8 × 8 with three entries in each row and column. Second "
        f"ones: {seconds}; bound {bound:.2f}.",
        "Both masks have the same degrees and the same first value. The second value shows that "
        "one of them falls into two halves.",
    )


@figure(2.0, HEX)
def hex_row(axes: Axes, walk: SimpleNamespace) -> Told:
    chosen, columns = 8, [str(channel) for channel in range(1, 9)]
    kept = walk.joint[0, chosen].tolist()
    coded = kv.quantise(walk.span[1].mT, walk.config.bits, walk.joint.mT)
    codes = coded.codes[0, :, chosen].tolist()
    exact, read = (x[0, chosen].tolist() for x in (walk.span[1], walk.by_channel))
    colours = [STRONG if on else WEAK for on in kept]
    waits, reads = ([f"{x:.2f}" for x in row] for row in (exact, read))
    marks = [x if on else f"#{code}" for x, on, code in zip(waits, kept, codes, strict=True)]
    rows = {"waits": [INK] * 8, "stored": colours, "read": colours}
    drawing.tiles(axes, columns, rows, (waits, marks, reads), weight="bold")
    axes.set_xticks(range(8), columns, rotation=0, ha="center")
    axes.set(xlabel="channel")
    legend({"waits": INK, "kept": STRONG, "coded": WEAK})
    return (
        f"The key of “{walk.words[chosen]}” in the first head, in three rows. Waiting in the "
        f"buffer: {', '.join(waits)}. Stored, # for a code: {', '.join(marks)}. Read: "
        f"{', '.join(reads)}.",
        f"A recent token waits whole. Once its block is full, the mask keeps {sum(kept)} entries, "
        f"and the others become codes of {walk.config.bits} bits.",
    )


@figure(1.9, HEX)
def hex_grids(axes: Axes, walk: SimpleNamespace) -> Told:
    said, lanes = [], {"all in one grid": None, "kept set aside": walk.kept}
    for down, (name, kept) in enumerate(lanes.items()):
        coded = kv.quantise(walk.channel, walk.config.bits, kept)
        low, step = float(coded.minima), float(coded.steps)
        restored = kv.dequantise(*coded)
        grid = [low + code * step for code in range(8)]
        axes.plot(grid, [down] * 8, "|", color=INK, markersize=20)
        for at, key in enumerate(walk.channel.tolist()):
            whole = kept is not None and kept[at]
            if not whole:
                axes.plot([key, float(restored[at])], [down - 0.3, down], color=WEAK, linewidth=1.5)
            axes.plot([key], [down - 0.3], "o", color=STRONG if whole else WEAK)
        said.append(f"{name}: steps of {step:.2f}")
    axes.set_yticks(range(2), [text.replace(": ", ",\n") for text in said])
    axes.set(ylim=(1.5, -0.6), xlabel="key of one channel")
    legend({"kept": STRONG, "coded": WEAK, "values of the codes": INK})
    return (
        f"One channel of the walk's keys above a grid of eight codes; {'; '.join(said)}. Orange "
        "keys move to the nearest code, green ones stay.",
        "Entries that are set aside do not stretch the grid. Its steps are smaller, so the coded "
        "entries move less.",
    )


@figure(2.6, HEX)
def hex_mass(axes: Axes, walk: SimpleNamespace) -> Told:
    words = walk.words[: len(walk.mass)]
    heavy = kv.heavy_hitter_mask(walk.mass, walk.config.heavy)
    recent = kv.recent_mask(len(words), walk.config.recent)
    colours = [STRONG if h else INK if r else WEAK for h, r in zip(heavy, recent, strict=True)]
    axes.bar(range(len(words)), walk.mass, color=colours)
    blank = torch.zeros(2, len(words), 1)
    even = kv.attention_mass(blank, blank)
    label = "if attention were even"
    axes.plot(range(len(words)), even, "o:", color=INK, markersize=4, label=label)
    drawing.under(axes, words)
    for word, colour in zip(axes.get_xticklabels(), colours, strict=True):
        word.set_color(colour)
    axes.set(ylabel="attention mass")
    axes.legend()
    legend({"heavy hitter": STRONG, "recent": INK, "neither": WEAK})
    return (
        f"Attention mass of {len(words)} words: {drawing.most(words, walk.mass, 5)}. Heavy: "
        f"{listed(words, heavy)}; recent: {listed(words, recent)}. Under even attention it falls "
        f"from {even[0]:.2f} to {even[-1]:.2f}.",
        "The heaviest word, the sink, and the last one are kept whole. Other early words are "
        "heavier than late ones in part because more queries attend to them.",
    )


@figure(1.5, "hex/packing.md")
def hex_bits(axes: Axes, page: SimpleNamespace) -> Told:
    length = 3 * len(page.codes)
    bits = [str(int(page.words[at // 32]) >> at % 32 & 1) for at in range(length)]
    shades = [WEAK if at // 3 == 10 else (STRONG, INK)[at // 3 % 2] for at in range(length)]
    rows = {"word 0": shades[:32], "word 1": shades[32:] + [None] * (64 - length)}
    places = [str(at) for at in range(32)]
    drawing.tiles(axes, places, rows, (bits[:32], bits[32:]), size=8)
    axes.set_xticks(range(0, 32, 3), places[::3], rotation=0, ha="center")
    axes.set(xlabel="bit of the word, lowest first")
    legend({"a code": STRONG, "the next code": INK, "a code in both words": WEAK})
    return (
        f"Twelve codes of three bits in two words of 32: {page.codes.tolist()}. Code 10 has two "
        "bits in the first word and one in the second.",
        "Codes lie end to end without gaps, so one of them begins in the first word and ends in "
        "the second.",
    )
