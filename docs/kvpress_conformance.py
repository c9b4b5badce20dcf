"""Run our test vectors on the scorers of kvpress: `python docs/kvpress_conformance.py`.

The script writes docs/kvpress.json. The page on kvpress describes the environment it needs.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from inspect import signature
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvpress  # pyright: ignore[reportMissingImports]
import torch
import torch.nn.functional as F
from kvpress import utils  # pyright: ignore[reportMissingImports]
from kvpress.presses.fastkvzip_press import FastKVzipGate  # pyright: ignore[reportMissingImports]
from torch import Tensor

import reference
import spec_tests
from optimized.bench import library
from reference import GateWeights, QueryStatistics
from spec_tests.json_values import read

FILE = Path(__file__).parent / "kvpress.json"
CLOSE = 1e-5
"""Largest allowed relative difference of scores, since kvpress' softmax is in float32."""


class Unasked(Exception):
    """Raised where a press does not support an input."""


def row(tensor: Tensor, axes: int = 4) -> Tensor:
    """Return a tensor as a batch of one row."""
    if tensor.ndim == axes and len(tensor) > 1:
        raise Unasked("several rows")
    return tensor if tensor.ndim == axes else tensor[None]


def snapkv(queries: Tensor, keys: Tensor, window: int, kernel: int) -> Tensor:
    """Return the scores of SnapKVPress."""
    return library.snapkv(queries, row(keys), window, kernel)()


def knorm(keys: Tensor) -> Tensor:
    """Return the scores of KnormPress."""
    return library.knorm(row(keys))()


def h2o_mass(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the scores of ObservedAttentionPress, from the weights of eager attention."""
    weights = reference.attention_weights(queries, keys)
    return kvpress.ObservedAttentionPress().score(None, None, row(keys), None, row(weights), {})


def pyramidkv_budgets(keep: int, layers: int, tokens: Any, window: int, beta: int) -> Tensor:
    """Return the layer budgets of PyramidKVPress."""
    counts = torch.as_tensor(tokens)
    budgets = torch.empty(layers, *counts.shape, dtype=torch.int64)
    for layer, (place, count) in product(range(layers), enumerate(counts.flatten().tolist())):
        config = SimpleNamespace(num_hidden_layers=layers)
        module = SimpleNamespace(config=config, layer_idx=layer)
        press = kvpress.PyramidKVPress(1 - min(1, keep / max(1, count)), window, beta=beta)
        share = press.get_layer_budget(module, count) if press.compression_ratio else count
        budgets[layer].view(-1)[place] = share
    return budgets


def rotary(frequencies: Tensor) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return a function that returns cosines and sines like a model's rotary embedding."""

    def turn(like: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        angles = places[..., None].to(like) * torch.cat([frequencies, frequencies]).to(like)
        return angles.cos(), angles.sin()

    return turn


def expected_attention(
    statistics: QueryStatistics,
    keys: Tensor,
    values: Tensor,
    rotation: Tensor,
    sinks: int,
    epsilon: float,
) -> Tensor:
    """Return the scores of ExpectedAttentionPress from these statistics."""
    mean, covariance = row(statistics.mean, 3), row(statistics.covariance)
    both = statistics._replace(mean=mean, covariance=covariance)
    return library.expected_attention(both, row(keys), row(values), rotation, sinks, epsilon)()


def query_statistics(queries: Tensor, sinks: int) -> QueryStatistics:
    """Return the query statistics of ExpectedAttentionPress."""
    tokens, width = queries.shape[-2:]
    queries = F.pad(queries, (0, width % 2))  # channels are rotated in pairs
    module, hidden, _ = library.layer_stub(queries, 1, tokens)
    module.rotary_emb = rotary(torch.zeros(queries.shape[-1] // 2))
    press = kvpress.ExpectedAttentionPress(n_sink=sinks)
    mean, covariance = press.get_query_statistics(module, hidden)
    none = torch.empty(0)
    return QueryStatistics(none, none, mean[..., :width], covariance[..., :width, :width])


def mean_rotation(frequencies: Tensor, start: int, future: int) -> Tensor:
    """Return the mean rotation of ExpectedAttentionPress."""
    width = 2 * len(frequencies)
    module = SimpleNamespace(head_dim=width, rotary_emb=rotary(frequencies))
    press = kvpress.ExpectedAttentionPress(n_future_positions=future)
    turned, _ = press.apply_avg_rope(module, torch.eye(width).double(), None, start)
    return turned.mT


def kvzip_chunk(
    queries: Tensor, keys: Tensor, repeat_keys: Tensor, index: int, chunk: int, sinks: int
) -> Tensor:
    """Return KVzipPress' scores of one chunk, after a prefix of `sinks` tokens."""
    if queries.ndim > 3:
        raise Unasked("several rows")
    asking, every, echo = (x.float() for x in (queries, row(keys), row(repeat_keys)))
    return library.kvzip_chunk(asking, every, echo, index, chunk, sinks)()


def kvzip(
    queries: Sequence[Tensor], keys: Tensor, repeat_keys: Sequence[Tensor], chunk: int, sinks: int
) -> Tensor:
    """Return KVzipPress' scores of a context, after a prefix of `sinks` tokens."""
    pairs = enumerate(zip(queries, repeat_keys, strict=True))
    return sum(
        (kvzip_chunk(asking, keys, echo, index, chunk, sinks) for index, (asking, echo) in pairs),
        torch.zeros(()),
    )


def fastkvzip(
    hidden: Tensor, weights: GateWeights, sinks: int, recent: int | None, epsilon: float
) -> Tensor:
    """Return the scores of FastKVzipPress' gate."""
    del sinks, recent
    heads, group, width, channels = weights.query.shape
    gate = FastKVzipGate(0, channels, heads, group, torch.float64, width, weights.learned.shape[1])
    gate.double().load_state_dict(
        {
            "q_proj.weight": weights.query.reshape(-1, channels),
            "q_proj.bias": weights.query_bias.reshape(-1),
            "k_proj.weight": weights.key.reshape(-1, channels),
            "q_norm.weight": weights.query_scale,
            "k_norm.weight": weights.key_scale,
            "k_base": weights.learned[:, None],
            "b": weights.bias[:, None],
        }
    )
    gate.q_norm.variance_epsilon = gate.k_norm.variance_epsilon = epsilon
    with torch.no_grad():
        return gate(hidden[None])


def kept_count(pool: int, ratio: float) -> int:
    """Return the number of entries that every press keeps at a ratio."""
    return utils.compute_n_kept(pool, ratio)


class Given(kvpress.ScorerPress):
    """A press with given scores, in which protected tokens have the highest score."""

    def score(self, module: Any, *_: Any) -> Tensor:
        """Return the given scores."""
        return module.given


def retain(
    scores: Tensor, protected: Tensor | None, keep: int | None, ratio: float | None
) -> Tensor:
    """Return the mask of entries that a ScorerPress keeps."""
    tokens = scores.shape[-1]
    if protected is not None:
        scores = scores.masked_fill(protected, scores.max().item() + 1)
    share = ratio if keep is None else 1 - (keep + 0.5) / tokens
    assert share is not None
    places = torch.arange(tokens).double().expand(1, scores[..., 0].numel(), -1)[..., None]
    module = SimpleNamespace(given=scores.view(places.shape[:-1]), head_dim=1)
    press = Given(share)
    left, _ = press.compress(module, None, places, places, None, {})
    return (
        torch.zeros_like(places[..., 0]).scatter_(-1, left[..., 0].long(), 1).bool().view_as(scores)
    )


def streaming_llm(keys: Tensor, sinks: int) -> Tensor:
    """Return the masks of StreamingLLMPress at every budget from the number of sinks on."""
    tokens, masks = keys.shape[-2], []
    places = torch.arange(tokens).double()[None, None, :, None]
    for keep in budgets(keys, sinks):
        press = kvpress.StreamingLLMPress(1 - (keep + 0.5) / tokens, n_sink=sinks)
        left, _ = press.compress(SimpleNamespace(head_dim=1), None, places, places, None, {})
        masks.append(torch.zeros(tokens).scatter_(-1, left.flatten().long(), 1).bool())
    return torch.stack(masks)


def budgets(keys: Tensor, sinks: int) -> range:
    """Return the budgets from the number of sinks to one below the number of tokens."""
    tokens = keys.shape[-2]
    return range(min(sinks, tokens - 1), tokens)


ASKED: dict[str, dict[str, Callable[..., Any] | str]] = {
    "compute_n_kept": {"kept_count": kept_count},
    "ScorerPress": {"retain": retain},
    "SnapKVPress": {"snapkv": snapkv},
    "PyramidKVPress": {"pyramidkv_budgets": pyramidkv_budgets},
    "ObservedAttentionPress": {"h2o_mass": h2o_mass, "h2o": "keep"},
    "KnormPress": {"knorm": knorm},
    "StreamingLLMPress": {"streaming_llm": streaming_llm},
    "ExpectedAttentionPress": {
        "expected_attention": expected_attention,
        "query_statistics": query_statistics,
        "mean_rotation": mean_rotation,
    },
    "KVzipPress": {"kvzip_chunk": kvzip_chunk, "kvzip": kvzip},
    "FastKVzipPress": {"fastkvzip": fastkvzip, "fastkvzip_loss": "a trainer"},
}
"""For each press, the functions of ours that it implements: how to call it for each, with the
arguments that it supports, or what it lacks."""


def asked(ask: Callable[..., Any] | str, name: str, inputs: dict[str, Any]) -> Any:
    """Return a press' result for the inputs of a function, whose defaults are the reference's."""
    if isinstance(ask, str):
        raise Unasked(ask)
    takes, defaults = signature(ask).parameters, signature(getattr(reference, name)).parameters
    for other in [other for other in defaults if other not in takes and other in inputs]:
        given, default = inputs[other], defaults[other].default
        if isinstance(given, Tensor) or (given and given != default):
            raise Unasked(other)
    return library.with_defaults(name, ask, inputs)


def vectors() -> Iterator[dict[str, Any]]:
    """Yield our test vectors with the names of their folders."""
    for file in sorted(Path(spec_tests.__file__).parent.glob("**/vectors.json")):
        for case in json.loads(file.read_text()):
            yield case | {"folder": file.parent.name}


def verdicts(press: str) -> Iterator[dict[str, Any]]:
    """Yield the verdict on a press for each test vector."""
    for case in vectors():
        ask = ASKED[press].get(case["function"])
        if ask is None or (case["function"] == "retain" and case["folder"] != "retain"):
            continue
        inputs, said = read(case["inputs"]), {"function": case["function"], "vector": case["id"]}
        try:
            theirs = asked(ask, case["function"], inputs)
        except Unasked as reason:
            yield said | {"verdict": "unasked", "lacks": str(reason)}
        except AssertionError as error:
            yield said | {"verdict": "refused", "lacks": str(error)}
        else:
            yield said | compared(case["function"], inputs, theirs)


def compared(name: str, inputs: dict[str, Any], theirs: Any) -> dict[str, Any]:
    """Return how a press' result compares with the specification's, without protected tokens."""
    ours = getattr(reference, name)(**inputs)
    if name == "streaming_llm":
        keeps = budgets(inputs["keys"], inputs.get("sinks", 4))
        ours = torch.stack([reference.retain(*ours, keep=keep)[0] for keep in keeps])
    if isinstance(ours, QueryStatistics):
        ours, theirs = (torch.cat([x.mean[..., None], x.covariance], -1) for x in (ours, theirs))
    free: Any = ...
    if scored := isinstance(ours, reference.Scored):
        ours, free = ours.scores, ~ours.protected
    ours, theirs = (torch.as_tensor(x).double() for x in (ours, theirs))
    ours, theirs = ours[free].flatten(), theirs.reshape(ours.shape)[free].flatten()
    numbers = dict(ours=rounded(ours), kvpress=rounded(theirs))
    scale = float(ours @ theirs / (ours @ ours).clamp(min=1e-300))
    if apart(theirs, ours) <= CLOSE:
        return dict(verdict="equal")
    if scored and scale > 0 and apart(theirs, scale * ours) <= CLOSE:
        return dict(verdict="factor", factor=round(scale, 4)) | numbers
    return dict(verdict="different") | numbers


def apart(one: Tensor, other: Tensor) -> float:
    """Return the largest difference, relative to the largest number of `other`."""
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-300))


def rounded(numbers: Tensor) -> list[float]:
    """Return the first eight numbers, rounded to four digits."""
    return [float(f"{x:.4g}") for x in numbers[:8].tolist()]


def main() -> None:
    """Run every press on the vectors, and write the verdicts."""
    names = ("kvpress", "transformers", "torch")
    found = {
        "versions": {name: version(name) for name in names},
        "close": CLOSE,
        "presses": {press: list(verdicts(press)) for press in ASKED},
    }
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
