"""What the pictures are drawn from: some documents of a run, read once more."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

import optimized
from optimized.models.layer import whole_layers
from optimized.models.prefill import Step, prefill
from optimized.models.systems import system_named
from optimized.study.documents import Document
from optimized.study.results import Settings, Trial
from optimized.study.score_runner import Panel

DOCUMENTS = 8
"""Documents whose scores are looked at: the longest."""
HELD = 2
"""Documents whose queries, keys and values are held."""
LAYERS = 4
"""Layers of which they are held, first to last."""
TOKENS = 2048
"""Tokens read of each document, as many as HubKV's observations have."""
SINKS = 4


class Captured(NamedTuple):
    """Scores of some documents, and what attention compares in a few of them; on the CPU."""

    layers: tuple[int, ...]
    """Those that are held."""
    queries: Float[Tensor, "layers held query_heads tokens width"]
    keys: Float[Tensor, "layers held kv_heads tokens width"]
    values: Float[Tensor, "layers held kv_heads tokens width"]
    observed: Float[Tensor, "layers held kv_heads tokens"]
    """SnapKV's scores."""
    reconstruction: Float[Tensor, "documents content"]
    """KVzip's scores of the content, mean over all layers and heads."""
    density: Float[Tensor, "all_layers documents kv_heads content"]
    """Mean attention that each token of the content draws from the queries of the content."""

    @property
    def content(self) -> slice:
        """Return where the content is: without the sinks and the recent tokens."""
        return content(self.keys.shape[-2])


def capture(model: PreTrainedModel, documents: Sequence[Document], settings: Settings) -> Captured:
    """Read the longest documents, and catch what the pictures need.

    Raises:
        ValueError: the documents are too short to have a content.
    """
    limit = getattr(model.config, "max_position_embeddings", None) or 2 * TOKENS
    most = min(TOKENS, limit // 2)  # KVzip reads them twice
    ids = torch.tensor([one.context[:most] for one in longest(documents)], device=model.device)
    tokens, count = ids.shape[1], whole_layers(model.config)
    inner, layers = content(tokens), spread(count, LAYERS)
    if inner.stop - inner.start < 16:
        raise ValueError(f"documents must have a content of at least 16 tokens, got {tokens}")
    rows = [Trial(system_named(name), 0.75) for name in ("kvzip", "snapkv")]
    panel = Panel(model, tokens, rows, settings._replace(kv=optimized, other=None))
    queries: list[Tensor] = []
    keys: list[Tensor] = []
    values: list[Tensor] = []
    density: list[Tensor] = []

    def watch(step: Step) -> None:
        mass = mean_attention(step.queries[:, :, inner], step.keys[:, :, : inner.stop])
        density.append(mass[..., inner].cpu())
        if step.layer in layers:
            queries.append(step.queries[:HELD].float().cpu())
            keys.append(step.keys[:HELD].float().cpu())
            values.append(step.values[:HELD].float().cpu())

    with torch.inference_mode():
        prompt = prefill(model, ids, watch=[*panel.watchers(), watch])
        zip_scores, snap_scores = (panel.scores(prompt, row, optimized)[0].scored for row in rows)
    mean = torch.stack([one.scores.float().mean(1).cpu() for one in zip_scores]).mean(0)
    observed = torch.stack([snap_scores[layer].scores[:HELD].float().cpu() for layer in layers])
    return Captured(
        layers,
        torch.stack(queries),
        torch.stack(keys),
        torch.stack(values),
        observed,
        optimized.content_series(mean, sinks=SINKS),
        torch.stack(density),
    )


def longest(documents: Sequence[Document]) -> list[Document]:
    """Return the longest documents, as many as are looked at."""
    most = max(len(one.context) for one in documents)
    return [one for one in documents if len(one.context) == most][:DOCUMENTS]


def content(tokens: int) -> slice:
    """Return the tokens that no scorer protects."""
    inner = (~optimized.protected_mask(tokens, SINKS)).nonzero().flatten()
    return slice(SINKS, SINKS + len(inner))


def spread(count: int, most: int) -> tuple[int, ...]:
    """Return some of so many layers, first and last among them."""
    if count <= most:
        return tuple(range(count))
    return tuple(round(place * (count - 1) / (most - 1)) for place in range(most))


def mean_attention(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
) -> Float[Tensor, "*batch kv_heads tokens"]:
    """Return the mean attention that each key draws from some queries, the last at its key.

    It is `attention_density`, mean over a group, without its weights of queries × tokens.
    """
    group = queries.shape[-3] // keys.shape[-3]
    return optimized.h2o_mass(queries, keys) / (group * queries.shape[-2])
