"""`python -m optimized`: the cache of a made-up model, compressed, every stage printed."""

import argparse
import math
import sys

import torch
from torch import Tensor

import optimized as kv

LAYERS, KV_HEADS, QUERY_HEADS, WIDTH = 4, 2, 8, 64
SEEN, FUTURE = 64, 32  # queries that score the cache, and queries that come after
NEIGHBOURS = 8  # of each source in GraphKV's graph: as long as a phrase of the made-up cache

CLOSING = """
GraphKV runs with its remedies per_head, spare_sources and clamp; as printed, all heads of a layer
keep the same tokens. error: of the attention output of the next queries, relative to the full
cache. The cache is made up, of phrases whose tokens resemble each other, which is what refinement
is for: this shows the stages at work, not a model's quality."""


def main() -> None:
    """Compress one seeded cache in four ways and print what each stage makes of it."""
    arguments = parse()
    ratio, tokens = arguments.ratio, arguments.tokens
    keys, values, past, future = made_up_cache(tokens, arguments.seed)
    say("cache", f"keys {shape(keys)}, values {shape(values)}, float32, seed {arguments.seed}")

    weights = kv.attention_weights(past, keys)
    say("attend", f"weights {shape(weights)}: the last {SEEN} queries, causal, each row sums to 1")

    scores = attention_mass(weights)
    say("score", f"{shape(scores)}: attention mass of a key head's queries, largest of a head = 1")

    protected = kv.protected_mask(tokens).expand(scores.shape)
    keep = kv.kept_count(tokens, ratio)
    ways = {
        "no refinement": scores,
        "HubKV": kv.hubkv_refine(scores, ratio, protected),
        "GraphKV": kv.graphkv_refine(
            scores,
            keys,
            keep,
            NEIGHBOURS,
            protected,
            per_head=True,
            spare_sources=True,
            clamp=True,
        ),
        "GraphKV, as printed": kv.graphkv_refine(scores, keys, keep, NEIGHBOURS, protected),
    }
    lowered = ", ".join(
        f"{name} {share(z, scores, protected)}" for name, z in list(ways.items())[1:]
    )
    say("refine", f"content scores lowered: {lowered}")
    say(
        "retain",
        f"{keep} of {tokens} tokens a head, {int(protected[0, 0].sum())} of them protected",
    )

    print(f"\n{'':<20}{'bytes kept':>12}{'of all':>9}{'runs of kept tokens':>22}{'error':>9}")
    whole = kv.attention(future, keys, values, causal=False)
    everything = kv.stored_bytes((keys, values))
    for name, refined in ways.items():
        kept = kv.retain(refined, protected, ratio=ratio)
        cache = kv.evict(keys, values, kept)
        assert isinstance(cache, kv.DenseCache), "the same number of tokens in every head"
        held = kv.stored_bytes((cache.keys, cache.values))
        left = kv.attention(future, cache.keys, cache.values, causal=False)
        error = float((left - whole).norm() / whole.norm())
        print(f"{name:<20}{held:>12,}{held / everything:>9.1%}{runs(kept):>22.1f}{error:>9.3f}")

    kept = kv.retain(ways["HubKV"], protected, ratio=ratio, scope="model")
    ragged = kv.evict(keys, values, kept)
    counts = ", ".join(str(int(count)) for count in kept.sum(-1).flatten())
    print(f"\nOne ranking over the whole model instead, HubKV: a head keeps {counts} tokens;")
    print(f"{type(ragged).__name__}, {kv.stored_bytes(ragged):,} bytes with positions and offsets.")
    print(CLOSING)


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(prog="python -m optimized", description=__doc__)
    parser.add_argument("--ratio", type=float, default=0.9, help="share of the cache to remove")
    parser.add_argument("--tokens", type=int, default=512, help="length of the cache")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.tokens < SEEN:
        parser.error(
            f"--tokens must be at least {SEEN}, the queries that score the cache, "
            f"got {arguments.tokens}"
        )
    return arguments


def made_up_cache(tokens: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return keys, values, and past and future queries that attend to phrases, not to tokens.

    Tokens come in phrases of eight that share a direction, as the words of one entity do; a query
    looks for three phrases, some of them more often than others, so attention is clustered.
    """
    draw = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=draw)

    phrases = math.ceil(tokens / 8)
    phrase = torch.arange(tokens) // 8
    topics = normal(LAYERS, KV_HEADS, phrases, WIDTH)
    meanings = normal(LAYERS, KV_HEADS, phrases, WIDTH)
    keys = topics[..., phrase, :] + 0.5 * normal(LAYERS, KV_HEADS, tokens, WIDTH)
    values = meanings[..., phrase, :] + 0.5 * normal(LAYERS, KV_HEADS, tokens, WIDTH)
    rank = 1 + torch.randperm(phrases, generator=draw)
    popularity = rank**-1.5
    asked = torch.multinomial(popularity.expand(SEEN + FUTURE, -1), 3, generator=draw)
    wanted = topics[:, :, asked].sum(-2).repeat_interleave(QUERY_HEADS // KV_HEADS, 1)
    queries = 0.8 * (wanted + normal(*wanted.shape))
    return keys, values, queries[..., :SEEN, :], queries[..., SEEN:, :]


def attention_mass(weights: Tensor) -> Tensor:
    """Return what each token received from the queries of its key head, in [0, 1] a head."""
    mass = weights.unflatten(1, (KV_HEADS, -1)).sum((2, 3))
    return mass / mass.amax(-1, keepdim=True)


def share(refined: Tensor, scores: Tensor, protected: Tensor) -> str:
    """Return the share of the content tokens whose score went down."""
    return f"{float((refined < scores)[~protected].float().mean()):.0%}"


def runs(kept: Tensor) -> float:
    """Return the mean number of unbroken runs of kept tokens in a head."""
    starts = kept & ~kept.roll(1, -1)
    starts[..., 0] = kept[..., 0]
    return float(starts.sum(-1).float().mean())


def shape(tensor: Tensor) -> str:
    """Return a shape as `4×2×512`."""
    return "×".join(map(str, tensor.shape))


def say(stage: str, what: str) -> None:
    """Print one stage."""
    print(f"{stage:<8}{what}")


if __name__ == "__main__":
    try:
        main()
    except ValueError as refusal:
        sys.exit(f"error: {refusal}")
