"""The pictures of the scorers' pages: the scores of each on the words of GraphKV's walk.

Green is kept for its score, grey is protected or a reference, orange is not kept. Charts of lines
and of layers name their colours in a legend.
"""

from collections.abc import Callable
from types import SimpleNamespace

import drawing
import torch
from drawing import BLUE, GRAPHKV, INK, KEPT, STRONG, WEAK, Told, figure, legend, listed, most
from matplotlib.axes import Axes

import reference as kv

KEEP = 5
ECHO = torch.zeros(2, 2, 2)
"""Keys of the repetition, for KVzip."""
SCORERS: dict[str, tuple[str, Callable[[SimpleNamespace], kv.Scored], str]] = {
    "snapkv": (
        "SnapKV",
        lambda walk: kv.snapkv(walk.queries, walk.keys, window=2, kernel=3),
        "SnapKV pools scores over three words. In a text this short, words between those that the "
        "window attends to rank high.",
    ),
    "h2o": (
        "H2O",
        lambda walk: kv.h2o(kv.h2o_mass(walk.queries, walk.keys), KEEP),
        "The words that have drawn most attention stay, here three words for one thought, beside "
        "the last two.",
    ),
    "cake": (
        "CAKE",
        lambda walk: kv.cake(walk.queries, walk.keys, window=2, kernel=1),
        "A word counts more if the two queries disagree about it, so “film” ranks above “great”.",
    ),
    "knorm": (
        "KNorm",
        lambda walk: kv.knorm(walk.keys, shift=True),
        "Short keys win. The keys of the walk are made by hand, and the short ones say nothing: "
        "the rule is about trained models.",
    ),
    "streaming_llm": (
        "StreamingLLM",
        lambda walk: kv.streaming_llm(walk.keys, sinks=2),
        "The first and the last words stay, whatever their keys are.",
    ),
    "kvzip": (
        "KVzip",
        lambda walk: kv.kvzip((walk.queries,), walk.keys, (ECHO,), chunk=13, sinks=1, recent=1),
        "The largest weight decides, not the sum: one query that attends to a word is enough.",
    ),
    "expected_attention": (
        "ExpectedAttention",
        lambda walk: kv.expected_attention(
            kv.query_statistics(walk.queries, sinks=0),
            walk.keys,
            walk.values,
            torch.eye(2),
            sinks=1,
        ),
        "Words with a value of zero have no score, however much attention they are expected to "
        "get.",
    ),
    "fastkvzip": (
        "FastKVzip",
        lambda walk: kv.fastkvzip(kv.concatenate_heads(walk.keys), gate(walk), sinks=1, recent=1),
        "The FastKVzip gate, trained for 100 steps on KVzip's scores of these words (circles), "
        "gives nearly the same scores without a repetition.",
    ),
}


def kvzip(walk: SimpleNamespace) -> torch.Tensor:
    """Return the scores that the gate of FastKVzip learns."""
    return SCORERS["kvzip"][1](walk).scores


def gate(walk: SimpleNamespace, steps: int = 100) -> kv.GateWeights:
    """Return a gate trained on the walk; keys stand for hidden states."""
    states = kv.concatenate_heads(walk.keys)
    return kv.train_fastkvzip(states, kvzip(walk), group=1, steps=steps, dim=4, learned=2)


def first_head(name: str, walk: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the scores of the first head, what is protected, and what is kept."""
    scores, protected = (part[0] for part in SCORERS[name][1](walk))
    return scores, protected, kv.retain(scores, protected, keep=KEEP)


def register(name: str) -> None:
    """Register the picture of one scorer."""
    title, _, conclusion = SCORERS[name]

    def draw(axes: Axes, walk: SimpleNamespace) -> Told:
        scores, protected, kept = first_head(name, walk)
        shades = [colour or WEAK for colour in drawing.kept_colours(kept, protected)]
        axes.bar(range(len(scores)), scores, color=shades)
        if name == "fastkvzip":
            axes.plot(range(len(scores)), kvzip(walk)[0], "o", color=INK, fillstyle="none")
        legend(KEPT | {"evicted": WEAK})
        drawing.under(axes, walk.words)
        for label, shade in zip(axes.get_xticklabels(), shades, strict=True):
            label.set_color(shade)
        axes.set(ylabel="score")
        return (
            f"{title}'s scores of the words of GraphKV's walk, first head, highest: "
            f"{most(walk.words, scores, 5)}. Five are kept, in green, or grey if protected: "
            f"{listed(walk.words, kept)}.",
            conclusion,
        )

    draw.__name__ = f"scorer_{name}"
    figure(2.3, GRAPHKV)(draw)


for scorer in SCORERS:
    register(scorer)


@figure(3.2, GRAPHKV)
def scorers_kept(axes: Axes, walk: SimpleNamespace) -> Told:
    rows, said = {}, []
    for name, (title, *_) in SCORERS.items():
        _, protected, kept = first_head(name, walk)
        rows[title] = drawing.kept_colours(kept, protected)
        said.append(f"{title}: {listed(walk.words, kept)}")
    drawing.tiles(axes, walk.words, rows)
    legend(KEPT)
    return (
        f"The five of 14 words that each scorer keeps, protected ones in grey. {'; '.join(said)}.",
        "With the same text and the same budget the scorers keep different words. Most of them "
        "protect some tokens whatever their score.",
    )


@figure(2.3, GRAPHKV)
def fastkvzip_learns(axes: Axes, walk: SimpleNamespace) -> Told:
    targets, states = kvzip(walk), kv.concatenate_heads(walk.keys)
    steps = (0, 5, 10, 20, 50)
    scores = [kv.fastkvzip(states, gate(walk, count)).scores for count in steps]
    *losses, least = (float(kv.fastkvzip_loss(one, targets)) for one in (*scores, targets))
    axes.plot(steps, losses, "o-", color=STRONG, label="loss of the gate")
    axes.axhline(least, color=INK, linestyle="--", linewidth=1, label="loss of KVzip's own scores")
    axes.set(xlabel="steps, each with a schedule that ends there", ylabel="cross-entropy")
    axes.legend()
    return (
        f"Cross-entropy of the gate on GraphKV's walk: {losses[0]:.3f} untrained, {losses[-1]:.3f} "
        f"after {steps[-1]} steps; the least possible is {least:.3f}.",
        "The loss does not go to zero, because scores are shares. It approaches the loss of the "
        "scores that are learned.",
    )


@figure(2.4, GRAPHKV)
def pyramidkv_slope(axes: Axes, _walk: SimpleNamespace) -> Told:
    said = []
    for colour, beta in zip((STRONG, WEAK, BLUE), (2, 5, 20), strict=True):
        budgets = kv.pyramidkv_budgets(128, layers=8, tokens=1000, beta=beta, exact=True)
        axes.plot(range(1, 9), budgets, "o-", color=colour, label=f"β = {beta}")
        said.append(f"β {beta}: {budgets.tolist()}")
    axes.axhline(128, color=INK, linewidth=1, linestyle=":")
    axes.axhline(32, color=INK, linewidth=1, linestyle="--", label="window")
    axes.set(xlabel="layer", ylabel="tokens kept", ylim=(0, None))
    drawing.above(axes, 4)
    return (
        f"Budgets of eight layers at a mean of 128 tokens, never below the window of 32. "
        f"{'; '.join(said)}.",
        "Early layers keep more tokens than late ones. A larger β makes the slope steeper and does "
        "not change the mean.",
    )


@figure(2.4, GRAPHKV)
def cake_cascade(axes: Axes, _walk: SimpleNamespace) -> Told:
    stages = kv.cake_cascade(torch.tensor([5.0, 1.0, 2.0]), keep=5, tokens=20, window=2)
    names = [f"after layer {layer}" for layer in range(1, len(stages) + 1)]
    parts = {f"layer {layer}": part for layer, part in enumerate(stages.T.tolist(), 1)}
    drawing.stacked(axes, parts, names, numbered=True)
    axes.set(xlabel="tokens kept")
    drawing.above(axes, len(stages))
    return (
        f"Budgets of three layers after each layer of the cascade: {stages.tolist()}.",
        "All layers share one budget. Each new layer takes its part from the layers before it, and "
        "their parts never grow again.",
    )


@figure(3.0, GRAPHKV)
def query_moments(axes: Axes, _walk: SimpleNamespace) -> Told:
    queries = torch.randn(1, 200, 2, generator=torch.Generator().manual_seed(0))
    queries = queries @ torch.tensor([[1.0, 0.6], [0.0, 0.5]]) + torch.tensor([2.0, 1.0])
    queries[:, :4] = torch.tensor([-2.0, 3.0]) + 0.3 * queries[:, :4]
    moments = kv.query_statistics(queries, sinks=4)
    mean, covariance = moments.mean[0], moments.covariance[0]
    turn = torch.linspace(0, 2 * torch.pi, 100)
    circle = torch.stack((turn.cos(), turn.sin()))
    ring = mean[:, None] + 2 * torch.linalg.cholesky(covariance) @ circle
    axes.plot(*queries[0, 4:].T, ".", color=STRONG, markersize=4, label="queries")
    axes.plot(*queries[0, :4].T, "o", color=WEAK, label="sinks' queries, left out")
    axes.plot(*ring, color=INK, linewidth=2, label="mean ± two deviations")
    axes.plot(*mean[:, None], "+", color=INK, markersize=14, markeredgewidth=3)
    axes.set(xlabel="channel 1", ylabel="channel 2")
    drawing.above(axes, 3)
    return (
        f"200 made-up queries of two channels, their mean at ({mean[0]:.2f}, "
        f"{mean[1]:.2f}) and the ellipse of two deviations. The first four lie far off.",
        "The ellipse describes the queries that are expected next. The queries of the first four "
        "tokens are left out, since they would move it.",
    )


@figure(2.6, GRAPHKV)
def rotation_shrinks(axes: Axes, _walk: SimpleNamespace) -> Told:
    futures = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    ends = []
    for angle, colour in ((0.01, STRONG), (0.1, WEAK), (1.0, INK)):
        turns = [kv.mean_rotation(torch.tensor([angle]), start=0, future=f) for f in futures]
        sizes = [float(torch.linalg.matrix_norm(turn, 2)) for turn in turns]
        axes.plot(futures, sizes, "o-", color=colour, label=f"{angle} radians")
        ends.append(f"{angle}: {sizes[5]:.2f}")
    axes.set(xlabel="positions averaged, F; colours by turn a position", ylabel="length left")
    axes.set(xscale="log", ylim=(0, 1.05))
    axes.set_xticks(futures, [str(future) for future in futures])
    axes.minorticks_off()
    drawing.above(axes, 3)
    return (
        f"Length of a unit vector after the mean rotation, by radians a position, at 32 positions: "
        f"{', '.join(ends)}.",
        "A pair that turns fast cancels out within a few positions. A slow pair keeps its mean "
        "query.",
    )
