"""The data of the pictures: tensors of some documents of a run, which are read once more."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

import optimized
from optimized.models.layer import count_full_attention_layers
from optimized.models.prefill import Step, prefill
from optimized.models.systems import system_named
from optimized.study.documents import Document
from optimized.study.measurements import MeasurementSettings, Trial
from optimized.study.prompt_scorers import PromptScorers

DOCUMENTS = 8
"""Number of documents whose scores are used: the longest ones."""
HELD = 2
"""Number of documents whose queries, keys and values are stored."""
LAYERS = 4
"""Number of layers for which they are stored, from the first to the last."""
TOKENS = 2048
"""Number of tokens read of each document, as in HubKV's observations."""
SINKS = 4


class Captured(NamedTuple):
    """Scores of some documents, and queries, keys and values of a few of them, on the CPU."""

    layers: tuple[int, ...]
    """The layers that are stored."""
    queries: Float[Tensor, "layers held query_heads tokens width"]
    keys: Float[Tensor, "layers held kv_heads tokens width"]
    values: Float[Tensor, "layers held kv_heads tokens width"]
    observed: Float[Tensor, "layers held kv_heads tokens"]
    """SnapKV's scores."""
    reconstruction: Float[Tensor, "documents content"]
    """KVzip's scores of the content, mean over all layers and heads."""
    density: Float[Tensor, "all_layers documents kv_heads content"]
    """Mean attention that each token of the content receives from the queries of the content."""

    @property
    def content(self) -> slice:
        """Return the span of the content: all tokens but the sinks and the recent ones."""
        return unprotected_span(self.keys.shape[-2])


def capture(
    model: PreTrainedModel, documents: Sequence[Document], settings: MeasurementSettings
) -> Captured:
    """Read the longest documents, and return the data of the pictures.

    Raises:
        ValueError: the documents are too short to have a content.
    """
    limit = getattr(model.config, "max_position_embeddings", None) or 2 * TOKENS
    most = min(TOKENS, limit // 2)  # KVzip reads each token twice
    longest = max(len(document.context) for document in documents)
    read = [one.context[:most] for one in documents if len(one.context) == longest][:DOCUMENTS]
    ids = torch.tensor(read, device=model.device)
    tokens, count = ids.shape[1], count_full_attention_layers(model.config)
    inner, layers = unprotected_span(tokens), spread_layers(count, LAYERS)
    if inner.stop - inner.start < 16:
        raise ValueError(f"documents must have a content of at least 16 tokens, got {tokens}")
    rows = [Trial(system_named(name), 0.75) for name in ("kvzip", "snapkv")]
    panel = PromptScorers(model, tokens, rows, settings._replace(kv=optimized, other=None))
    stored: list[list[Tensor]] = []
    density: list[Tensor] = []

    def watch(step: Step) -> None:
        mass = mean_received_attention(step.queries[:, :, inner], step.keys[:, :, : inner.stop])
        density.append(mass[..., inner].cpu())
        if step.layer in layers:
            parts = step.queries, step.keys, step.values
            stored.append([part[:HELD].float().cpu() for part in parts])

    with torch.inference_mode():
        prompt = prefill(model, ids, watch=[*panel.watchers(), watch])
        zip_scores, snap_scores = (panel.scores(prompt, row, optimized)[0].scored for row in rows)
    mean = torch.stack([one.scores.float().mean(1).cpu() for one in zip_scores]).mean(0)
    observed = torch.stack([snap_scores[layer].scores[:HELD].float().cpu() for layer in layers])
    queries, keys, values = map(torch.stack, zip(*stored, strict=True))
    content = optimized.content_series(mean, sinks=SINKS)
    return Captured(layers, queries, keys, values, observed, content, torch.stack(density))


def unprotected_span(tokens: int) -> slice:
    """Return the span of tokens that no scorer protects."""
    inner = (~optimized.protected_mask(tokens, SINKS)).nonzero().flatten()
    return slice(SINKS, SINKS + len(inner))


def spread_layers(count: int, most: int) -> tuple[int, ...]:
    """Return at most `most` of `count` layers at even distances, with the first and the last."""
    if count <= most:
        return tuple(range(count))
    return tuple(round(place * (count - 1) / (most - 1)) for place in range(most))


def mean_received_attention(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
) -> Float[Tensor, "*batch kv_heads tokens"]:
    """Return the mean attention that each key receives; the last query is at the last key.

    It equals `attention_density`, averaged over a group of query heads, but allocates no weights
    of size queries × tokens.
    """
    group = queries.shape[-3] // keys.shape[-3]
    return optimized.h2o_mass(queries, keys) / (group * queries.shape[-2])
