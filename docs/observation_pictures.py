"""The pictures of the pages on masks and on what the papers observe.

Green is kept or ours, orange is what the page warns of, grey is the rest.
"""

from collections.abc import Mapping
from itertools import product
from types import SimpleNamespace

import torch
from drawing import INK, STRONG, WEAK, figure
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from method_pictures import Told, panels
from walkthrough_pictures import COLOURS, GRAPHKV, HEX, HUBKV, WIDTH, above, bars, stacked, tiles

import reference as kv


def lines(axes: Axes, rows: Mapping[str, torch.Tensor], first: int = 0) -> None:
    """Draw a line with a colour and a legend entry for each row."""
    for colour, (label, row) in zip(COLOURS, rows.items(), strict=False):
        axes.plot(range(first, first + len(row)), row, "o-", color=colour, label=label)
    axes.set(ylim=(0, None))
    above(axes, len(rows))


def dots(axes: Axes, mask: torch.Tensor, size: float) -> None:
    """Draw the kept entries of a mask, tokens downwards."""
    tokens, channels = mask.nonzero(as_tuple=True)
    axes.scatter(channels, tokens, size, color=STRONG, linewidths=0, rasterized=True)
    axes.set(xlabel="channel", ylabel="token")
    axes.set(xlim=(-1, mask.shape[1]), ylim=(mask.shape[0], -1))


@figure(WIDTH, 2.2, HUBKV)
def hubkv_kernels(axes: Axes, _walk: SimpleNamespace) -> Told:
    """Draw two kernels by distance."""
    window, bell = kv.window_kernel(7, radius=2), kv.gaussian_kernel(7, deviation=1.5)
    lines(axes, {"window, radius 2": window, "Gaussian, deviation 1.5": bell})
    axes.set(xlabel="distance in tokens", ylabel="share covered")
    return (
        f"Share that a token covers at distances from 0 to 6. Window: {window.tolist()}. Gaussian: "
        f"{[round(share, 2) for share in bell.tolist()]}.",
        "A window covers all or nothing, a Gaussian less and less.",
    )


@figure(WIDTH, 2.4, "hubkv/greedy.md")
def hubkv_greedy(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the coverage of the first picks of three rankings."""
    orders = {
        "greedy": kv.greedy(page.weights, keep=5),
        "Top-K": kv.ranking(page.scores)[:5],
        "discounted": kv.ranking(kv.smd(page.scores))[:5],
    }
    rows = {}
    for name, order in orders.items():
        sets = [torch.isin(torch.arange(12), order[:count]) for count in range(6)]
        rows[name] = torch.stack([kv.coverage(page.weights, kept) for kept in sets])
    lines(axes, rows)
    axes.set(xlabel="tokens kept", ylabel="coverage")
    second = ", ".join(f"{name} {float(row[2]):.2f}" for name, row in rows.items())
    return (
        f"Coverage against tokens kept on the scores of this page. With two tokens: {second}.",
        "Top-K's second pick covers little that is new; discounting finds the second pick of "
        "the greedy loop, and falls short at the third.",
    )


@figure(WIDTH, 2.2, "hubkv/head_budgets.md")
def hubkv_budgets(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the budgets of two heads by each rule."""
    budgets = {rule: kv.head_budgets(page.heads, keep=2, rule=rule) for rule in page.rules}
    even, sharp = torch.stack(list(budgets.values()), dim=1).tolist()
    heads = {"even head": even, "sharp head": sharp}
    stacked(axes, heads, page.rules, (STRONG, WEAK), numbered=True)
    axes.set(xlabel="places of the layer")
    above(axes, 2)
    return (
        "Four places of a layer, the even and the sharp head's. "
        + " ".join(f"{rule}: {row.tolist()}." for rule, row in budgets.items()),
        "The rules disagree on which head needs more: entropy favours the even one, selectivity "
        "the sharp one.",
    )


@figure(WIDTH, 2.2, "hubkv/importance_locality.md")
def hubkv_locality(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the autocorrelation of the page's scores."""
    row = kv.autocorrelation(page.scores, distances=3)
    axes.bar(range(len(row)), row, color=[STRONG if r > 0 else WEAK for r in row])
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(xlabel="distance in tokens", ylabel="autocorrelation", xticks=range(len(row)))
    return (
        f"Autocorrelation of the page's 12 scores by distance: "
        f"{[round(r, 2) for r in row.tolist()]}.",
        "A score resembles its next neighbour's; two places on, nothing is left of that.",
    )


@figure(WIDTH, 2.4, "hubkv/segment_coverage.md")
def hubkv_segments(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the share of segments reached by the first picks of three orders."""
    orders = {
        "even spread": kv.uniform_spread(12, picks=4),
        "Top-K": kv.ranking(page.scores)[:4],
        "random": kv.random_order(12, seed=0)[:4],
    }
    rows = {
        name: kv.segment_coverage(order, tokens=12, segments=4).cumsum(0)
        for name, order in orders.items()
    }
    lines(axes, rows, first=1)
    axes.set(xlabel="picks", ylabel="segments reached", xticks=range(1, 5))
    ends = ", ".join(f"{name} {float(row[-1]):.2f}" for name, row in rows.items())
    return (
        f"Share of four segments that are reached, against picks. After four: {ends}.",
        "Top-K stands still where its picks crowd together: the gap to an even spread is what "
        "HubKV wants to close.",
    )


@figure(WIDTH, 2.2, "hubkv/span_retention.md")
def hubkv_chains(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw what two heads keep of a span, before and after discounting."""
    rows, said = {}, []
    for head in range(2):
        for name, mask in (("Top-K", page.base), ("discounted", page.refined)):
            pairs = list(zip(mask[head].tolist(), page.span.tolist(), strict=True))
            label = f"head {head + 1}, {name}"
            rows[label] = [(STRONG if inside else INK) if on else None for on, inside in pairs]
            said.append(f"{label}: {[at for at, (on, _) in enumerate(pairs) if on]}")
    columns = [f"{at}{' in span' if on else ''}" for at, on in enumerate(page.span.tolist())]
    tiles(axes, columns, rows)
    return (
        f"Tokens that two heads keep, those of the span 1 to 3 in green. {'; '.join(said)}.",
        "Discounting takes token 3 out of the chain, and keeps token 5 for it.",
    )


@figure(WIDTH, 2.4, HUBKV)
def hubkv_ungated(axes: Axes, walk: SimpleNamespace) -> Told:
    """Draw refined scores with the gate at a quarter removed, and without."""
    inside = ~walk.protected[0]
    words = [word for word, on in zip(walk.words, inside, strict=True) if on]
    gated = kv.hubkv_refine(walk.scores, 0.25, walk.protected)[0][inside]
    bare = kv.ungated_refine(walk.scores, walk.protected)[0][inside]
    bars(axes, words, {"with the gate at ratio 0.25": gated, "without": bare}, "refined score")
    red, cat = words.index("red"), words.index("cat")
    return (
        f"Refined scores of the walk's first head. With the gate at ratio 0.25 “red” has "
        f"{float(gated[red]):.2f} and “cat” {float(gated[cat]):.2f}; without it "
        f"{float(bare[red]):.2f} and {float(bare[cat]):.2f}.",
        "Without the gate “red” falls behind “cat” though three quarters of the cache stay.",
    )


@figure(WIDTH, 2.8, GRAPHKV)
def graphkv_alike(axes: Axes, walk: SimpleNamespace) -> Told:
    """Draw the cosines between the words that each ranking keeps."""
    said = []
    both = (("Top-K", walk.plain), ("GraphKV", walk.kept[0]))
    for part, (name, kept) in zip(panels(axes, 2, shared=False), both, strict=True):
        chosen = kept & ~walk.protected[0]
        words = [word for word, on in zip(walk.words, chosen, strict=True) if on]
        cosines = kv.cosine_matrix(walk.keys[0][chosen])
        part.imshow([[to_rgba(WEAK, max(c, 0)) for c in row] for row in cosines.tolist()])
        for (down, at), cosine in zip(product(range(3), repeat=2), cosines.flatten(), strict=True):
            colour = "white" if cosine > 0.5 else INK
            part.annotate(f"{cosine:.2f}", (at, down), ha="center", va="center", color=colour)
        part.set_xticks(range(len(words)), words)
        part.set_yticks(range(len(words)), words)
        part.set_title(name)
        mean = float(kv.cosine_distribution(walk.keys[0][chosen], bins=4).mean)
        said.append(f"{name}: {', '.join(words)}, mean cosine {mean:.2f}")
    return (
        f"Cosines between the keys that are kept beside the window. {'; '.join(said)}.",
        "What Top-K keeps is alike throughout. GraphKV keeps two directions; “film” and “music” "
        "are alike as well, since neither is a source.",
    )


@figure(WIDTH, 2.0, "graphkv/needle.md")
def graphkv_needles(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw where the needle lies at five depths."""
    rows = {}
    for depth in (0.0, 0.25, 0.5, 0.75, 1.0):
        text = kv.hide_needle(page.haystack, page.needle, length=10, depth=depth)
        rows[f"depth {depth}"] = [WEAK if token >= 700 else INK for token in text.tolist()]
    tiles(axes, [str(at) for at in range(10)], rows)
    axes.set(xlabel="token of the input")
    return (
        "Inputs of ten tokens with a needle of two, in orange, at depths from 0 to 1.",
        "The depth moves the needle from the start to the end; the length stays.",
    )


@figure(WIDTH, 2.4, HEX)
def hex_lists(axes: Axes, walk: SimpleNamespace) -> Told:
    """Draw a mask, with the channel number in each kept entry."""
    rows = kv.to_csr(walk.expander)
    marks = {
        word: [STRONG if on else None for on in row]
        for word, row in zip(walk.words, walk.expander.tolist(), strict=False)
    }
    tiles(axes, [str(at) for at in range(8)], marks)
    for token, channel in walk.expander.nonzero().tolist():
        style = {"ha": "center", "va": "center", "color": "white", "weight": "bold", "size": 8}
        axes.annotate(str(channel), (channel, token), **style)
    axes.set(xlabel="channel")
    return (
        f"The expander of the walk, 8 tokens by 8 channels. Offsets {rows.offsets.tolist()}, "
        f"channels {rows.columns.tolist()}.",
        "Only the numbers in the green tiles are stored, row after row, and where each row begins.",
    )


@figure(WIDTH, 2.6, HEX)
def hex_pairing(axes: Axes, _walk: SimpleNamespace) -> Told:
    """Draw a pairing of half-edges with its repeated edges, and the mask after the swaps."""
    pairs = kv.half_edge_pairing(8, 8, 3)
    swapped = kv.double_edge_swaps(pairs, 8)
    repeated = []
    for part, (name, edges) in zip(
        panels(axes, 2), (("paired", pairs), ("after the swaps", swapped)), strict=True
    ):
        counts = torch.nn.functional.one_hot(edges, 8).sum(1)
        shades = {
            str(token): [(None, STRONG, WEAK)[min(count, 2)] for count in row]
            for token, row in enumerate(counts.tolist())
        }
        tiles(part, [str(channel) for channel in range(8)], shades)
        part.set_title(name)
        part.set(xlabel="channel")
        repeated.append(int((counts > 1).sum()))
    return (
        f"Eight tokens by eight channels, three half-edges each. Repeated edges, in orange: "
        f"{repeated[0]} after the pairing, {repeated[1]} after the swaps.",
        "A repeated edge (orange) leaves a row short of an entry; a swap trades it, and every row "
        "and column has three.",
    )


@figure(WIDTH, 3.2, "hex/graph_lift.md")
def hex_lift(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the mask of the page's covering."""
    dots(axes, page.mask, 8)
    axes.set_aspect("equal")
    return (
        f"A mask of {' × '.join(map(str, page.mask.shape))} with three entries in every row and "
        "column, made of one of 3 × 3 by four doublings.",
        "Every doubling splits an entry into two of a 2 × 2 square, straight or crossed; degrees "
        "never change.",
    )


@figure(WIDTH, 2.4, HEX)
def hex_subtile(axes: Axes, _walk: SimpleNamespace) -> Told:
    """Draw the first two heads of a sub-tile mask, and the tiles."""
    found = kv.subtile_expander(tokens=96, heads=8)
    mask = kv.subtile_mask(kv.subtile_permutations(found.codes))[:, :256]
    dots(axes, mask, 3)
    for edge in (32, 64):
        axes.axhline(edge - 0.5, color=INK, linewidth=0.8, linestyle=":")
    axes.axvline(127.5, color=INK, linewidth=0.8, linestyle=":")
    return (
        "The first two of eight heads, 96 tokens by 256 channels, cut into tiles of 32 tokens and "
        "one head. Each tile has four entries in a row and one in a column.",
        "Inside a tile every channel has one token and every token four channels: a permutation, "
        "in four bytes.",
    )


@figure(WIDTH, 2.2, "hex/connectivity.md")
def hex_pieces(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw the page's mask as a graph in two pieces."""
    for token, channel in page.mask.nonzero().tolist():
        colour = STRONG if token < 2 else WEAK
        axes.plot([token, channel], [1, 0], "-o", color=colour, linewidth=2)
    axes.set(ylim=(-0.1, 1.1), xlabel="number")
    axes.set_yticks((0, 1), ("channels", "tokens"))
    axes.set_xticks(range(4))
    axes.spines[:].set_visible(False)
    values = torch.linalg.svdvals(page.mask.double())
    return (
        f"Four tokens above, four channels below, in two pieces that no edge joins. Singular "
        f"values {[round(x, 2) for x in values.tolist()]}.",
        "No way leads from a green token to an orange channel: two pieces, and the largest "
        "singular value twice.",
    )


@figure(WIDTH, 1.7, HEX)
def hex_conductance(axes: Axes, _walk: SimpleNamespace) -> Told:
    """Draw the bounds on the conductance of two masks, and its value."""
    said = []
    for down, (seed, colour) in enumerate(((0, STRONG), (1, WEAK))):
        mask = kv.random_expander(tokens=6, channels=6, token_degree=3, seed=seed).mask
        second = kv.second_singular_value(mask)
        share = 1 - second / 3
        value = kv.conductance(kv.bipartite_adjacency(mask))
        axes.plot([share / 2, (2 * share) ** 0.5], [down] * 2, "|-", color=colour, markersize=14)
        axes.plot([value], [down], "o", color=colour)
        said.append(f"σ₂ = {second:.2f}: {share / 2:.2f} ≤ {value:.2f} ≤ {(2 * share) ** 0.5:.2f}")
    axes.set_yticks((0, 1), [text.split(":")[0] for text in said])
    axes.set(
        xlabel="conductance, between the bounds of the spectrum", ylim=(1.5, -0.5), xlim=(0, 1)
    )
    return (
        f"Conductance of two masks of 6 × 6 between its two bounds. {'; '.join(said)}.",
        "The smaller σ₂, the higher the bounds and, here, the conductance: no set of vertices is "
        "cut off cheaply.",
    )


@figure(WIDTH, 3.2, "hex/sensitivity.md")
def hex_bits_error(axes: Axes, page: SimpleNamespace) -> Told:
    """Draw error against bytes for three widths of codes."""
    points = [(row.bytes, float(row.error)) for row in page.rows]
    axes.plot(*zip(*points, strict=True), "o-", color=STRONG)
    for bits, point in zip((2, 4, 8), points, strict=True):
        axes.annotate(f"{bits} bits", point, (8, 6), textcoords="offset points", color=INK)
    axes.set(xlabel="bytes of the cache at the end", ylabel="mean deviation of attention")
    axes.set(ylim=(0, None), xlim=(1000, 1460))
    pairs = zip((2, 4, 8), points, strict=True)
    said = "; ".join(f"{bits} bits: {size} bytes, {error:.3f}" for bits, (size, error) in pairs)
    return (
        f"Mean deviation of attention against bytes on this page's stream. {said}.",
        "Every further bit costs the same bytes and takes off less error than the one before.",
    )


@figure(3.6, 3.4, HEX)
def hex_lps(axes: Axes, _walk: SimpleNamespace) -> Told:
    """Draw the smallest mask that arithmetic gives."""
    mask = kv.lps_mask(prime=5, modulus=13)
    dots(axes, mask, 1)
    axes.set_aspect("equal")
    return (
        f"A mask of {mask.shape[0]} × {mask.shape[1]} with six entries in every row and column, "
        "in regular patterns.",
        "No entry is drawn at random, and yet the second singular value is below the bound.",
    )
