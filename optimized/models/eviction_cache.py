"""A cache for `transformers` that evicts entries and frees their memory."""

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

import optimized
from optimized import DenseCache, RaggedCache, Scored
from optimized.models import argument_checks as checks
from optimized.models.attending_layer import AttendingLayer, without_autocast
from optimized.models.attention import (
    Softmax,
    causal,
    dense_attention,
    masked_attention,
    weighted_attention,
)
from optimized.models.cache import AttendingCache
from optimized.models.layer import is_latent
from reference.contract.checks import must_be, shaped
from reference.contract.enforce import trusted
from reference.contract.types import Finite

# A function that a layer calls after each call of the model, with queries, keys, values, mask and
# hidden states. Queries and hidden states are those of the new tokens, the rest of all tokens.
Observer = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], None]


class EvictionLayer(AttendingLayer):
    """One layer: the entries that eviction kept, and every later token.

    Where all heads keep equally many entries, these share dense tensors with the later tokens.
    Otherwise `old` holds the kept entries, head after head. Keys are already rotated, so no
    positions are stored.
    """

    can_remove_last = True

    def __init__(self) -> None:
        super().__init__()
        self.evicted, self.seen_before = False, 0
        self.old: RaggedCache | None = None
        self.last: list[int] = []
        self.observe: Observer | None = None
        self.when_attended: Callable[[], None] | None = None
        """What to call once, after the next attention output."""

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens, if any, and return the attention output over all entries left.

        There is no new token where a layer without keys of its own attends to this one.
        """
        out = self.attention_output(query, valid, softmax)
        if self.when_attended is not None:
            (call, self.when_attended) = self.when_attended, None
            call()
        return out

    def attention_output(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens, if any, and return the attention output over all entries left."""
        if self.arriving is not None:
            keys, values, hidden = self.append_arriving()
            if self.old is not None and softmax.plain:
                named = dict(queries=query, keys=keys, values=values)
                for name, tensor in named.items():
                    must_be(name, tensor, Finite[Tensor, "rows heads tokens width"])
            if self.observe is not None:
                self.observe(softmax.standard(query), *self.whole, valid, hidden)
        valid = self.dense_mask(valid)
        if self.old is None:
            return dense_attention(query, *self.whole, valid, softmax)
        query = query.to(self.whole[0].dtype)
        with without_autocast(query):
            if not softmax.plain:
                return weighted_attention(query, *self.side_by_side(query, valid), softmax)[0]
            since = *self.whole, valid
            with trusted():  # entries were checked when they were added
                out = optimized.ragged_attention(query, self.old, *since, scale=softmax.scale)
        assert isinstance(out, Tensor)  # without a log-sum-exp
        return out

    def side_by_side(self, query: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return dense keys and values of heads of different lengths, and the mask of queries.

        Shorter heads are filled up with zeros, which the mask hides.
        """
        assert self.old is not None
        rows, heads, tokens, _ = self.whole[0].shape
        lengths = self.old.offsets.diff().view(rows, heads, 1)
        filled = torch.arange(int(lengths.max()), device=query.device) < lengths
        sides: list[Tensor] = []
        for old, new in zip(self.old[:2], self.whole, strict=True):
            wide = old.new_zeros(*filled.shape, old.shape[-1])
            wide[filled] = old
            sides.append(torch.cat([wide, new], 2))
        count = query.shape[2]
        seen = causal(count, tokens, valid, query.device).expand(rows, heads, count, tokens)
        visible = torch.cat([filled[:, :, None].expand(-1, -1, count, -1), seen], -1)
        return sides[0], sides[1], visible

    def dense_mask(self, valid: Tensor | None) -> Tensor | None:
        """Return the padding mask of the dense entries: eviction keeps no padding."""
        if valid is None or not self.evicted:
            return valid
        flags = valid.new_ones(len(valid), self.whole[0].shape[2] - self.new_tokens)
        return torch.cat([flags, valid[:, valid.shape[1] - self.new_tokens :]], 1)

    @property
    def new_tokens(self) -> int:
        """Number of tokens added after the eviction."""
        return self.seen - self.seen_before

    def adopt(self, left: DenseCache | RaggedCache) -> None:
        """Replace all tokens so far by the given entries."""
        if isinstance(left, DenseCache):
            self.keys, self.values = left.keys, left.values
        else:
            self.old = ragged_without_positions(left.keys, left.values, left.offsets)
            self.keys, self.values = map_both(lambda x: x[:, :, :0].clone(), *self.whole)
        self.settle()
        self.evicted, self.seen_before = True, self.seen
        self.last = (left.positions.flatten() == self.seen - 1).nonzero()[:, 0].tolist()

    def take_back(self) -> None:
        """Remove the last token."""
        dense = self.whole
        heads, tokens = dense[0].shape[:2].numel(), dense[0].shape[2]
        if self.new_tokens or not self.evicted or (self.old is None and len(self.last) == heads):
            self.keys, self.values = map_both(lambda x: x[:, :, :-1], *dense)
        elif self.last:
            bounds = torch.arange(heads + 1, device=dense[0].device) * tokens
            flat = map_both(lambda x: x.flatten(0, 2), *dense)
            keys, values, _, offsets = self.old or ragged_without_positions(*flat, bounds)
            stays = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
            stays[self.last] = False
            gone = F.pad((~stays).cumsum(0), (1, 0))
            left = map_both(lambda x: x[stays], keys, values)
            self.old = ragged_without_positions(*left, offsets - gone[offsets])
            self.keys, self.values = map_both(lambda x: x[:, :, :0].clone(), *dense)
        self.seen -= 1
        if self.seen < self.seen_before:
            self.seen_before, self.last = self.seen, []

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        keys, values = self.whole
        heads, tokens = keys.shape[1], keys.shape[2] - (self.new_tokens if self.evicted else 0)
        if self.old is None:
            places = torch.arange(keys.shape[:2].numel() * tokens).view(-1, heads, tokens)[rows]
        else:
            lengths = self.old.offsets.diff()
            spans = torch.arange(len(self.old.keys)).split(lengths.tolist())
            pools = torch.arange(len(spans)).view(-1, heads)[rows].flatten()
            places = torch.cat([spans[n] for n in pools.tolist()])
            there, offsets = places.to(keys.device), F.pad(lengths[pools].cumsum(0), (1, 0))
            both = map_both(lambda x: x[there], *self.old[:2])
            self.old = ragged_without_positions(*both, offsets)
        last = torch.isin(places.flatten(), torch.tensor(self.last, dtype=torch.long))
        self.last = last.nonzero()[:, 0].tolist()
        self.keys, self.values = map_both(lambda x: x[rows], keys, values)
        self.settle()

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.evicted, self.seen_before, self.old, self.last = False, 0, None, []


class LatentLayer(EvictionLayer):
    """One layer of multi-head latent attention: it stores one latent row for each token.

    A row is the latent, followed by the rotated part of the keys. The values of all heads, and the
    first part of their keys, are projections of the latent. A row is stored once, as both key and
    value, and expanded when it is attended to. Watchers get queries projected to the space of
    rows: $q^T (W c) = (W^T q)^T c$, where $W$ expands a row.
    """

    expands = True

    def __init__(self) -> None:
        super().__init__()
        self.expand: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
        self.rank = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Create an empty tensor of rows, used as keys and as values."""
        super().lazy_initialization(key_states, value_states)
        self.values = self.keys

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Hold the latents of new tokens, joined with the rotated part of their keys."""
        self.rank = key_states.shape[-1]
        rows = torch.cat([key_states, value_states], -1)
        return super().update(rows, rows)

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new rows, expand all rows left, and return the attention output over them."""
        expand, self.expand = self.expand, None
        if expand is None:
            raise ValueError(
                "model must expand the latent rows of its cache in `expand_kv` of its attention, "
                "got one that does not, or that `attach` did not prepare"
            )
        new, _, hidden = self.take_arriving()
        self.keys = self.values = self.appended("keys", new)

        def both(rows: Tensor) -> tuple[Tensor, Tensor]:
            return expand(rows[..., : self.rank], rows[..., self.rank :])

        if self.observe is not None:
            units = torch.eye(self.keys.shape[-1]).to(self.keys)[None, None]
            weight = both(units)[0] - both(torch.zeros_like(units))[0]  # a bias shifts all logits
            self.observe(softmax.standard(query @ weight.mT), self.keys, self.keys, valid, hidden)
        valid = self.dense_mask(valid)
        if self.old is None:
            return dense_attention(query, *both(self.keys), valid, softmax)
        rows, _, visible = self.side_by_side(query, valid)
        return masked_attention(query, *both(rows), visible, softmax)

    def adopt(self, left: DenseCache | RaggedCache) -> None:
        """Replace all tokens so far by the given entries."""
        super().adopt(left._replace(values=left.keys))


class EvictionCache(AttendingCache):
    """A cache whose entries can be evicted once, after the prompt.

    `prefill` fills it; until the eviction it is a full cache. Later tokens continue at their true
    positions: `get_seq_length` counts the tokens seen, `nbytes` the bytes stored. Sliding-window
    layers are those of `transformers`, and hold the window only.
    """

    evicts = True

    def __init__(self, config: Any) -> None:
        kind = LatentLayer if is_latent(config) else EvictionLayer
        super().__init__(config, lambda _: kind())
        self.open = False

    def admit(self, count: int, real: Tensor | None, seen: int) -> None:
        """Refuse a prompt that `prefill` does not read, since it would never be compressed."""
        super().admit(count, real, seen)
        for state in self.states.values():
            state.remember(count)
        if not self.open and not seen:
            raise ValueError(
                "past_key_values must hold a prompt that `prefill` read, got an empty "
                "EvictionCache, of which nothing would be evicted: call `compressed`, or `prefill` "
                "and then `compress` or `evict`; HexTransformersCache and "
                "DecodingTransformersCache need neither"
            )

    def take_back(self) -> None:
        """Remove the last token, so that it can be read again."""
        if any(state.before is None for state in self.states.values()):
            super().take_back()
        for layer in (*self.layers, *self.states.values()):
            if hasattr(layer, "take_back"):
                layer.take_back()
        left = self.get_seq_length()
        if self.kept_of_prompt is not None:
            self.kept_of_prompt = [mask[..., :left] for mask in self.kept_of_prompt]

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.open = False

    def evict(
        self,
        kept: Sequence[Tensor] | Tensor,
        kv: ModuleType = optimized,
        exact: Collection[int] = (),
    ) -> None:
        """Keep the marked entries and free the others, layer by layer.

        Args:
            kept: a mask over batch, heads and tokens for each layer that sees the whole text, as
                `retain` returns it.
            kv: the implementation of `evict`, `reference` or `optimized`.
            exact: indices of the layers that stay as they are.

        Raises:
            TypeError: a mask is not boolean.
            ValueError: a mask does not fit the cache or keeps padding, or the cache is empty or
                was evicted before.
        """
        layers = self.whole_layers()
        checks.require_one_per_layer("kept", kept, len(layers))
        for index, (layer, mask) in enumerate(zip(layers, kept, strict=True)):
            must_be(f"kept[{index}]", mask, Bool[Tensor, "*axes"])
            shaped(f"kept[{index}]", mask, layer.whole[0].shape[:-1])
            if self.valid is not None and bool((mask & ~self.valid.to(mask.device)[:, None]).any()):
                raise ValueError(f"kept[{index}] must be False at padding, got True")
        for index, (layer, mask) in enumerate(zip(layers, kept, strict=True)):
            if index not in exact:
                layer.adopt(kv.evict(*layer.whole, layer.beside(mask)))
        self.kept_of_prompt = [mask.cpu().clone() for mask in kept]

    def compress(
        self,
        scored: Sequence[Scored],
        compressor: Callable[..., Any],
        *,
        scope: str | None = None,
        budgets: Tensor | None = None,
        **settings: Any,
    ) -> None:
        """Refine, retain and evict as one of the compressors does; an error evicts nothing.

        Args:
            scored: the scores of each layer.
            compressor: `compress`, `hubkv_compress` or `graphkv_compress` of `reference` or
                `optimized`; the last one supports the scope `"head"` only.
            scope: which entries compete: those of a `"head"`, a `"layer"` or the `"model"`; by
                default the compressor's own scope.
            budgets: how many entries a head keeps, for each layer and batch row, in place of
                `keep` or `ratio`.
            settings: other arguments of the compressor: `ratio` or `keep`, `refinement`. The cache
                passes `valid` itself.

        Raises:
            ValueError: the compressor raises it, scores or budgets have another number of layers,
                or the cache is empty or was compressed before.
        """
        layers = self.whole_layers()
        checks.require_one_per_layer("scored", scored, len(layers))
        settings |= checks.scope_argument(compressor, scope, budgets)
        if settings.get("valid") is None:
            settings["valid"] = self.valid
        elif self.valid is not None and bool((settings["valid"] & ~self.valid).any()):
            raise ValueError("valid must be False at the padding that was read, got True")
        checks.require_refinable_scores(
            compressor, settings.get("refinement"), scored, settings["valid"]
        )
        if budgets is not None:
            checks.require_one_per_layer("budgets", budgets, len(layers))
        # A compressor evicts what the selection beside it does not keep.
        kv = import_module(compressor.__module__.partition(".")[0])
        select = getattr(kv, compressor.__name__.replace("compress", "select"))
        if settings.get("scope") == "model":
            keys, values = map(torch.stack, zip(*(layer.whole for layer in layers), strict=True))
            both = Scored(*(torch.stack(parts) for parts in zip(*scored, strict=True)))
            self.evict(select(keys, values, both, **settings), kv)
            return
        kept: list[Tensor] = []
        for index, layer in enumerate(layers):
            if budgets is not None:
                settings["keep"] = pool_budgets(
                    budgets[index], layer.whole[0].shape[1], settings.get("scope")
                )
            kept.append(select(*layer.whole, scored[index], **settings))
        self.evict(kept, kv)

    def evictable(self) -> list[EvictionLayer]:
        """Return the layers that see the whole text."""
        return [layer for layer in self.layers if isinstance(layer, EvictionLayer)]

    def whole_layers(self) -> list[EvictionLayer]:
        """Return the layers that see the whole text, if they still hold every token."""
        return [*self.whole_layers_but(()).values()]

    def whole_layers_but(self, others: Collection[int]) -> dict[int, EvictionLayer]:
        """Return these layers but for some, by their index."""
        layers = {n: layer for n, layer in enumerate(self.evictable()) if n not in others}
        if any(layer.evicted or not layer.is_initialized for layer in layers.values()):
            raise ValueError("cache must be filled and whole, got one that is empty or evicted")
        return layers


def exact_or(
    exact: Collection[int], compressed: Callable[[int], AttendingLayer]
) -> Callable[[int], AttendingLayer]:
    """Return a function that creates a layer by its index: a dense one if it stays exact."""
    return lambda index: EvictionLayer() if index in exact else compressed(index)


def map_both(
    change: Callable[[Tensor], Tensor], keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply a function to keys and values, only once where they are the same tensor."""
    first = change(keys)
    return first, first if values is keys else change(values)


def ragged_without_positions(keys: Tensor, values: Tensor, offsets: Tensor) -> RaggedCache:
    """Return a ragged cache that stores no positions, since its keys are already rotated."""
    return RaggedCache(keys, values, offsets[:1].expand(len(keys)), offsets)


def pool_budgets(budgets: Tensor, heads: int, scope: str | None) -> Tensor:
    """Return the budgets of a layer's pools, from the number each head keeps in a batch row.

    A compressor without a scope keeps equally many tokens in every head: the number is unchanged.
    So are budgets with a number for each head.
    """
    if scope is None or budgets.ndim > 1:
        return budgets
    if scope == "layer":
        return budgets * heads
    return budgets[..., None].expand(*budgets.shape, heads)
