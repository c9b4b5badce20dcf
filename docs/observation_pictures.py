"""The pictures of the pages on masks and on what the papers observe.

Green is kept or ours, orange is what the page warns of, grey is the rest. Blue and pink are two
heads. Charts of lines name their colours in a legend.
"""

from types import SimpleNamespace

import drawing
import torch
from drawing import GRAPHKV, HEADS, HEX, HUBKV, INK, STRONG, WEAK, Told, figure, legend
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

import reference as kv


@figure(2.2, HUBKV)
def hubkv_kernels(axes: Axes, _walk: SimpleNamespace) -> Told:
    window, bell = kv.window_kernel(7, radius=2), kv.gaussian_kernel(7, deviation=1.5)
    drawing.lines(axes, {"window, radius 2": window, "Gaussian, deviation 1.5": bell})
    axes.set(xlabel="distance in tokens", ylabel="share covered")
    return (
        f"Share that a token covers at distances from 0 to 6. Window: {window.tolist()}. Gaussian: "
        f"{[round(share, 2) for share in bell.tolist()]}.",
        "A window covers a neighbour fully or not at all. A Gaussian covers less with every token "
        "of distance.",
    )


@figure(2.4, "hubkv/greedy.md")
def hubkv_greedy(axes: Axes, page: SimpleNamespace) -> Told:
    orders = {
        "greedy": kv.greedy(page.weights, keep=5),
        "Top-K": kv.ranking(page.scores)[:5],
        "discounted": kv.ranking(kv.smd(page.scores))[:5],
    }
    rows = {}
    for name, order in orders.items():
        sets = [torch.isin(torch.arange(12), order[:count]) for count in range(6)]
        rows[name] = torch.stack([kv.coverage(page.weights, kept) for kept in sets])
    drawing.lines(axes, rows)
    axes.set(xlabel="tokens kept", ylabel="coverage")
    second = ", ".join(f"{name} {row[2]:.2f}" for name, row in rows.items())
    return (
        f"Coverage against tokens kept on the scores of this page. With two tokens: {second}.",
        "The second pick of Top-K covers little that is new. Discounting finds the second pick of "
        "the greedy loop, and falls short at the third.",
    )


@figure(2.2, "hubkv/head_budgets.md")
def hubkv_budgets(axes: Axes, page: SimpleNamespace) -> Told:
    budgets = {rule: kv.head_budgets(page.heads, keep=2, rule=rule) for rule in page.rules}
    even, sharp = torch.stack(list(budgets.values()), dim=1).tolist()
    parts = {"even head": even, "sharp head": sharp}
    drawing.stacked(axes, parts, page.rules, HEADS, numbered=True)
    axes.set(xlabel="places of the layer")
    drawing.above(axes, 2)
    return (
        "Four places of a layer, the even and the sharp head's. "
        + " ".join(f"{rule}: {row.tolist()}." for rule, row in budgets.items()),
        "The rules disagree on which head needs more: entropy favours the even one, selectivity "
        "the sharp one.",
    )


@figure(2.2, "hubkv/importance_locality.md")
def hubkv_locality(axes: Axes, page: SimpleNamespace) -> Told:
    row = kv.autocorrelation(page.scores, distances=3)
    axes.bar(range(len(row)), row, color=STRONG)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(xlabel="distance in tokens", ylabel="autocorrelation", xticks=range(len(row)))
    return (
        f"Autocorrelation of the page's 12 scores by distance: "
        f"{[round(r, 2) for r in row.tolist()]}.",
        "A score resembles that of its direct neighbour. At a distance of two tokens nothing is "
        "left of this.",
    )


@figure(2.4, "hubkv/segment_coverage.md")
def hubkv_segments(axes: Axes, page: SimpleNamespace) -> Told:
    orders = {
        "even spread": kv.uniform_spread(12, picks=4),
        "Top-K": kv.ranking(page.scores)[:4],
        "random": kv.random_order(12, seed=0)[:4],
    }
    rows = {
        name: kv.segment_coverage(order, tokens=12, segments=4).cumsum(0)
        for name, order in orders.items()
    }
    drawing.lines(axes, rows, first=1)
    axes.set(xlabel="picks", ylabel="segments reached", xticks=range(1, 5))
    ends = ", ".join(f"{name} {row[-1]:.2f}" for name, row in rows.items())
    return (
        f"Share of four segments that are reached, against picks. After four: {ends}.",
        "Picks of Top-K that crowd together reach no new segment. HubKV's aim is to close the gap "
        "to an even spread.",
    )


@figure(2.2, "hubkv/span_retention.md")
def hubkv_chains(axes: Axes, page: SimpleNamespace) -> Told:
    rows, said = {}, []
    for head in range(2):
        for name, mask in (("Top-K", page.base), ("discounted", page.refined)):
            label = f"head {head + 1}, {name}"
            rows[label] = drawing.kept_colours(mask[head], ~page.span)
            said.append(f"{label}: {mask[head].nonzero().flatten().tolist()}")
    columns = [f"{at}{' in span' if on else ''}" for at, on in enumerate(page.span.tolist())]
    drawing.tiles(axes, columns, rows)
    legend({"kept, in the span": STRONG, "kept, elsewhere": INK})
    return (
        f"Tokens that two heads keep, those of the span 1 to 3 in green. {'; '.join(said)}.",
        "Discounting evicts token 3 of the span in both heads, and keeps token 5 in its place.",
    )


@figure(2.4, HUBKV)
def hubkv_ungated(axes: Axes, walk: SimpleNamespace) -> Told:
    inside = ~walk.protected[0]
    words = [word for word, on in zip(walk.words, inside, strict=True) if on]
    gated = kv.hubkv_refine(walk.scores, 0.25, walk.protected)[0][inside]
    bare = kv.ungated_refine(walk.scores, walk.protected)[0][inside]
    rows = {"with the gate at ratio 0.25": gated, "without": bare}
    drawing.bars(axes, words, rows, "refined score")
    red, cat = words.index("red"), words.index("cat")
    return (
        f"Refined scores of the walk's first head. With the gate at ratio 0.25 “red” has "
        f"{gated[red]:.2f} and “cat” {gated[cat]:.2f}; without it {bare[red]:.2f} and "
        f"{bare[cat]:.2f}.",
        "Without the gate “red” falls behind “cat”, although three quarters of the cache stay.",
    )


@figure(2.8, GRAPHKV)
def graphkv_alike(axes: Axes, walk: SimpleNamespace) -> Told:
    said = []
    both = (("Top-K", walk.plain), ("GraphKV", walk.kept[0]))
    for part, (name, kept) in zip(drawing.panels(axes, 2, shared=False), both, strict=True):
        chosen = kept & ~walk.protected[0]
        words = [word for word, on in zip(walk.words, chosen, strict=True) if on]
        cosines = kv.cosine_matrix(walk.keys[0][chosen])
        part.imshow([[to_rgba(WEAK, max(c, 0)) for c in row] for row in cosines.tolist()])
        for down, row in enumerate(cosines.tolist()):
            for at, cosine in enumerate(row):
                colour = "white" if cosine > 0.5 else INK
                drawing.centred(part, f"{cosine:.2f}", at, down, color=colour)
        part.set_xticks(range(len(words)), words)
        part.set_yticks(range(len(words)), words)
        part.set_title(name)
        mean = float(kv.cosine_distribution(walk.keys[0][chosen], bins=4).mean)
        said.append(f"{name}: {', '.join(words)}, mean cosine {mean:.2f}")
    return (
        f"Cosines between the keys that are kept beside the window. {'; '.join(said)}.",
        "The keys that Top-K keeps are all alike. GraphKV keeps two directions. “film” and “music” "
        "are alike as well, since neither is a source.",
    )


@figure(2.0, "graphkv/needle.md")
def graphkv_needles(axes: Axes, page: SimpleNamespace) -> Told:
    rows = {}
    for depth in (0.0, 0.25, 0.5, 0.75, 1.0):
        text = kv.hide_needle(page.haystack, page.needle, length=10, depth=depth)
        rows[f"depth {depth}"] = [WEAK if token >= 700 else INK for token in text.tolist()]
    drawing.tiles(axes, [str(at) for at in range(10)], rows)
    axes.set(xlabel="token of the input")
    legend({"needle": WEAK, "haystack": INK})
    return (
        "Inputs of ten tokens with a needle of two, in orange, at depths from 0 to 1.",
        "The depth moves the needle from the start of the input to its end. The length of the "
        "input stays the same.",
    )


@figure(2.4, HEX)
def hex_lists(axes: Axes, walk: SimpleNamespace) -> Told:
    small = kv.expander_mask(8, 8, 0.375)
    lists, mask = kv.to_csr(small), small.tolist()
    channels = [str(at) for at in range(8)]
    rows = {at: [STRONG if on else None for on in row] for at, row in enumerate(mask)}
    texts = [[at if on else "" for at, on in zip(channels, row, strict=True)] for row in mask]
    drawing.tiles(axes, channels, rows, texts, weight="bold", size=8)
    axes.set_yticks(range(8), walk.words[:8])
    axes.set(xlabel="channel")
    return (
        f"An expander of 8 tokens by 8 channels. Offsets {lists.offsets.tolist()}, "
        f"channels {lists.columns.tolist()}.",
        "Only the numbers in the tiles are stored, row after row, and the place where each row "
        "begins.",
    )


@figure(2.6, HEX)
def hex_pairing(axes: Axes, _walk: SimpleNamespace) -> Told:
    pairs = kv.half_edge_pairing(8, 8, 3)
    both = {"paired": pairs, "after the swaps": kv.double_edge_swaps(pairs, 8)}
    repeated = []
    for part, (name, edges) in zip(drawing.panels(axes, 2), both.items(), strict=True):
        counts = torch.nn.functional.one_hot(edges, 8).sum(1)
        shades = {
            str(token): [(None, STRONG, WEAK)[min(count, 2)] for count in row]
            for token, row in enumerate(counts.tolist())
        }
        drawing.tiles(part, [str(channel) for channel in range(8)], shades)
        part.set(title=name, xlabel="channel")
        repeated.append(int((counts > 1).sum()))
    legend({"one edge": STRONG, "two edges": WEAK})
    return (
        f"Eight tokens by eight channels, three half-edges each. Repeated edges, in orange: "
        f"{repeated[0]} after the pairing, {repeated[1]} after the swaps.",
        "A repeated edge leaves its row and column with too few entries. Swaps remove it, so that "
        "every row and column has three.",
    )


@figure(3.2, "hex/graph_lift.md")
def hex_lift(axes: Axes, page: SimpleNamespace) -> Told:
    drawing.dots(axes, page.mask, 8)
    axes.set_aspect("equal")
    return (
        f"A mask of {' × '.join(map(str, page.mask.shape))} with three entries in every row and "
        "column, made of one of 3 × 3 by four doublings.",
        "Every doubling replaces an entry by two in a 2 × 2 square, straight or crossed, so the "
        "degrees do not change.",
    )


@figure(2.4, HEX)
def hex_subtile(axes: Axes, _walk: SimpleNamespace) -> Told:
    found = kv.subtile_expander(tokens=96, heads=8)
    mask = kv.subtile_mask(kv.subtile_permutations(found.codes))[:, :256]
    drawing.dots(axes, mask, 3)
    for edge in (32, 64):
        axes.axhline(edge - 0.5, color=INK, linewidth=0.8, linestyle=":")
    axes.axvline(127.5, color=INK, linewidth=0.8, linestyle=":")
    return (
        "The first two of eight heads, 96 tokens by 256 channels, cut into tiles of 32 tokens and "
        "one head. Each tile has four entries in a row and one in a column.",
        "Inside a tile every channel keeps one token and every token four channels. Such a "
        "permutation takes four bytes.",
    )


@figure(2.2, "hex/connectivity.md")
def hex_pieces(axes: Axes, page: SimpleNamespace) -> Told:
    for token, channel in page.mask.nonzero().tolist():
        colour = STRONG if token < 2 else WEAK
        axes.plot([token, channel], [1, 0], "-o", color=colour, linewidth=2)
    axes.set(ylim=(-0.1, 1.1), xlabel="number", xticks=range(4))
    drawing.two_levels(axes)
    legend({"first piece": STRONG, "second piece": WEAK})
    values = torch.linalg.svdvals(page.mask.double())
    return (
        f"Four tokens above, four channels below, in two pieces that no edge joins. Singular "
        f"values {[round(x, 2) for x in values.tolist()]}.",
        "No path leads from one piece to the other, and the spectrum shows it: the largest "
        "singular value appears twice.",
    )


@figure(1.7, HEX)
def hex_conductance(axes: Axes, _walk: SimpleNamespace) -> Told:
    said = []
    for down in range(2):
        mask = kv.random_expander(tokens=6, channels=6, token_degree=3, seed=down).mask
        second = kv.second_singular_value(mask)
        share = 1 - second / 3
        low, high = share / 2, (2 * share) ** 0.5
        value = kv.conductance(kv.bipartite_adjacency(mask))
        axes.plot([low, high], [down] * 2, "|-", color=STRONG, markersize=14)
        axes.plot([value], [down], "o", color=STRONG)
        said.append(f"σ₂ = {second:.2f}: {low:.2f} ≤ {value:.2f} ≤ {high:.2f}")
    axes.set_yticks((0, 1), [text.split(":")[0] for text in said])
    axes.set(xlabel="conductance, between the bounds of the spectrum", xlim=(0, 1))
    axes.set(ylim=(1.5, -0.5))
    return (
        f"Conductance of two masks of 6 × 6 between its two bounds. {'; '.join(said)}.",
        "The smaller σ₂, the higher are both bounds, and here the conductance too: no set of "
        "vertices is nearly cut off.",
    )


@figure(3.2, "hex/sensitivity.md")
def hex_bits_error(axes: Axes, page: SimpleNamespace) -> Told:
    points = [(row.bytes, float(row.error)) for row in page.rows]
    axes.plot(*zip(*points, strict=True), "o-", color=STRONG)
    said = []
    for bits, (size, error) in zip((2, 4, 8), points, strict=True):
        place = {"xytext": (8, 6), "textcoords": "offset points"}
        axes.annotate(f"{bits} bits", (size, error), color=INK, **place)
        said.append(f"{bits} bits: {size} bytes, {error:.3f}")
    axes.set(xlabel="bytes of the cache at the end", ylabel="mean deviation of attention")
    axes.set(ylim=(0, None), xlim=(1000, 1460))
    return (
        f"Mean deviation of attention against bytes on this page's stream. {'; '.join(said)}.",
        "Every further bit costs the same number of bytes and removes less error than the bit "
        "before.",
    )


@figure(3.4, HEX, width=3.6)
def hex_lps(axes: Axes, _walk: SimpleNamespace) -> Told:
    mask = kv.lps_mask(prime=5, modulus=13)
    drawing.dots(axes, mask, 1)
    axes.set_aspect("equal")
    return (
        f"A mask of {mask.shape[0]} × {mask.shape[1]} with six entries in every row and column, "
        "in regular patterns.",
        "No entry is drawn at random, and still the second singular value is below the bound.",
    )
