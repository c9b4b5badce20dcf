"""Base classes of the caches for `transformers`: layers that compute their own attention."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from importlib import import_module
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)

import optimized
from optimized.models import argument_checks as checks
from optimized.models.attention import CallAwareCache, MarkedMaskOffset, Softmax, UnsupportedMask
from reference.contract.enforce import trusted


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context without autocast, for functions that choose their own precision."""
    kind = x.device.type
    on = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


class Named(str):
    """The name of a module."""


class Saved:
    """An object that can be pickled although it holds modules: by their names."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, with modules replaced by their names."""
        state = vars(self).items()
        return {name: Named(x.__name__) if isinstance(x, ModuleType) else x for name, x in state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled state, and import the modules it names."""
        for name, x in state.items():
            vars(self)[name] = import_module(x) if isinstance(x, Named) else x


class LastingLayer(Saved):
    """A cache layer that changes no tensor in place that a copy shares."""

    def settle(self) -> None:
        """Leave memory that is written in place, before a copy shares the tensors."""

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> "LastingLayer":
        """Return an independent copy; it shares tensors, which are not changed in place."""
        self.settle()
        copy = object.__new__(type(self))
        vars(copy).update(vars(self))
        memo[id(self)] = copy
        return copy


class AttendingLayer(LastingLayer, CacheLayerMixin):
    """A cache layer that computes the attention over its own entries.

    `update` holds the new tokens and returns the layer itself in place of keys and values. Our
    attention function then calls `attend`, which adds the tokens and returns their output. Any
    other attention function uses the layer as a tensor, which raises an error.
    """

    is_sliding = False
    supports_early_init = False
    shares = False
    """Whether layers without keys of their own can also attend to this one."""
    expands = False
    """Whether it stores latent rows, which are expanded to keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.steady = False
        """Whether the values of a call need no check: `AttendingCache.repeats_last_step`."""
        self.arriving: tuple[Tensor, Tensor] | None = None
        self.hidden: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Create empty keys and values with the shape, dtype and device of the new ones."""
        none = key_states[:, :, :0].to(value_states.dtype)
        self.keys, self.values = none.clone(), value_states[:, :, :0].clone()
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Hold the keys and values of new tokens until `attend` adds them; return the layer."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        checks.require_batch_size(key_states, self.keys.shape[0])
        new, held = value_states.dtype, self.keys.dtype
        if torch.promote_types(new, held) != new and torch.finfo(new).bits < torch.finfo(held).bits:
            raise ValueError(
                f"model must compute in the type of the cache, {held}, got {new}: make the cache "
                "after the model is converted"
            )
        self.arriving = key_states, value_states
        return self, self

    def take_arriving(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return keys, values and hidden states of the new tokens, and count them as seen.

        The layer then holds them no longer, so a second call fails.
        """
        assert self.arriving is not None
        (keys, values), self.arriving = self.arriving, None
        hidden, self.hidden = self.hidden, None
        self.seen += keys.shape[2]
        # Under autocast the projected values are narrower than the rotated keys.
        return keys.to(values.dtype), values, hidden

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Return the output for the queries of the new tokens."""
        raise NotImplementedError

    def value_checks(self) -> AbstractContextManager[None]:
        """Return a context for `attend`, without checks of values in a steady call."""
        return trusted() if self.steady else nullcontext()

    def get_seq_length(self) -> int:
        """Return how many tokens were seen, kept or evicted: the next rotary position."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of a mask over all tokens seen, and where it starts."""
        return self.seen + query_length, MarkedMaskOffset(0)

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    def reset(self) -> None:
        """Forget every token."""
        self.keys = self.values = self.arriving = self.hidden = None
        self.is_initialized, self.seen, self.steady = False, 0, False

    def __getattr__(self, name: str) -> Any:
        """Raise an error where an attention function uses the layer as a tensor."""
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise ValueError(
            "model must attend through this package over a cache of it: call "
            "`optimized.models.attach(model)`, and again after its attention is changed"
        )


class WindowLayer(LastingLayer, DynamicSlidingWindowLayer):
    """A sliding-window layer of `transformers`, uncompressed.

    It holds one token more than the next query sees, so that the last one can be removed.
    """

    def __init__(self, sliding_window: int) -> None:
        super().__init__(sliding_window)
        self.held: list[Tensor] = []

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Append new tokens; return the keys and values held before, followed by the new ones."""
        whole, size = super().update(key_states, value_states), self.sliding_window
        # A view would keep the whole longer tensor in memory.
        self.held = [x if x.shape[2] <= size else x[:, :, -size:].clone() for x in whole]
        self.keys, self.values = (x[:, :, -self.sliding_window + 1 :] for x in self.held)
        return whole

    def take_back(self) -> None:
        """Remove the last token."""
        self.keys, self.values = (x[:, :, :-1] for x in self.held)
        self.cumulative_length -= 1

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        self.held = [x[rows] for x in self.held]
        self.keys, self.values = (x[:, :, -self.sliding_window + 1 :] for x in self.held)

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.held = []


class StateLayer(LastingLayer, LinearAttentionLayer):
    """A layer of `transformers` with a recurrent state: linear attention or a convolution.

    A model changes states in place. This layer gives it copies, so that an earlier state can be
    restored.
    """

    def renew(self, kind: str, index: int) -> Tensor | None:
        """Replace a state by a copy, and return the copy."""
        for name, held in list(vars(self).items()):
            if isinstance(held, dict):
                vars(self)[name] = dict(held)
        states = vars(self)[kind]
        if states[index] is not None:
            states[index] = states[index].clone()
        return states[index]

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, *size: Any, **how: Any
    ) -> Tensor:
        """Update a copy of the convolution state."""
        self.renew("conv_states", state_idx)
        return super().update_conv_state(conv_states, state_idx, *size, **how)

    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **how: Any
    ) -> Tensor:
        """Update a copy of the linear-attention state."""
        self.renew("recurrent_states", state_idx)
        return super().update_recurrent_state(recurrent_states, state_idx, **how)

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        vars(self).update(rows_of_states(vars(self), rows))

    def reset(self) -> None:
        """Forget every token."""
        count = self.number_of_states
        vars(self).clear()
        type(self).__init__(self, count)


def unsupported(what: str, instead: str) -> NotImplementedError:
    """Return an error for an operation that compressed caches do not support."""
    return NotImplementedError(f"{what} is not supported on a compressed cache; {instead}")


def rows_of_states(held: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """Return the given batch rows of a layer's convolution and recurrent states."""
    kinds = {kind: held[kind] for kind in ("conv_states", "recurrent_states")}
    return {
        kind: {n: None if x is None else x[rows] for n, x in states.items()}
        for kind, states in kinds.items()
    }


def own_layers(config: Any) -> list[Any]:
    """Return the cache layers that `transformers` creates for a model."""
    try:
        layers = DynamicCache(config=config).layers
    except AttributeError as error:
        raise ValueError(
            "model must say in its configuration what each of its layers caches, got "
            f"{config.model_type!r}: {error}"
        ) from error
    checks.require_known_layers(config, layers)
    return layers


def sees_all(layer: Any) -> bool:
    """Return whether a layer caches the keys and values of the whole text."""
    return type(layer).__name__ in checks.WHOLE


def build_layers(
    config: Any, whole: Callable[[], AttendingLayer]
) -> tuple[list[Any], dict[int, StateLayer]]:
    """Return the layers of a new cache, and those with a recurrent state by their index.

    `whole` creates each layer that sees the whole text. `config` may also be a cache: the new one
    then copies its other layers.
    """
    if isinstance(config, AttendingCache):
        memo: dict[int, Any] = {}
        every = [
            whole() if isinstance(one, AttendingLayer) else deepcopy(one, memo)
            for one in config.layers
        ]
        held = [one.expands for one in config.layers if isinstance(one, AttendingLayer)]
        checks.reject_latent_attention(any(held) and not whole().expands)
        return every, deepcopy(config.states, memo)
    layers: list[Any] = []
    states = {}
    for index, one in enumerate(own_layers(config)):
        if isinstance(one, LinearAttentionLayer):
            states[index] = StateLayer(one.number_of_states)
        if sees_all(one):
            layers.append(whole())
        elif isinstance(one, DynamicSlidingWindowLayer):
            layers.append(WindowLayer(one.sliding_window))
        else:  # a recurrent state alone, or no cache at all
            layers.append(states.get(index, one))
    checks.reject_shared_keys(config, layers)
    checks.reject_latent_attention(is_latent(config) and not whole().expands)
    return layers, states


def count_full_attention_layers(config: Any) -> int:
    """Return how many layers of a model see the whole text."""
    return sum(map(sees_all, own_layers(config)))


def is_latent(config: Any) -> bool:
    """Return whether a model caches one latent row per token, shared by all heads."""
    return getattr(config.get_text_config(decoder=True), "kv_lora_rank", None) is not None


def key_heads_and_width(config: Any) -> tuple[int, int]:
    """Return the number of key heads of a model, and their width."""
    text = config.get_text_config(decoder=True)
    if is_latent(config):
        return 1, text.kv_lora_rank + text.qk_rope_head_dim
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return heads, width


WITH_TEXT = 4
"""Number of position axes where the first one counts tokens, as models pass them to `generate`."""


def flags_of(masks: dict[str, Any], seen: int, new: int) -> Tensor | None:
    """Return which tokens are not padding, from the attention masks of a model's decoder."""
    mask = masks.get("full_attention")
    if isinstance(mask, UnsupportedMask):
        raise ValueError(
            "model must attend only to earlier tokens, got a mask that lets the tokens of an image "
            "see each other: image prompts of this model are not supported; text is, if the model "
            "makes no such mask for it"
        )
    if mask is None:
        return None
    flags = mask[:, 0, 0].to(torch.bool)
    # A call that repeats all seen tokens has a mask of twice their number.
    return flags[:, :seen] if seen == new and not bool(flags[:, seen:].any()) else flags


FACTOR = 0x5851F42D4C957F2D
"""Odd, so that multiplication modulo 2^64 is invertible and loses no earlier id."""


def signed(number: int) -> int:
    """Return the signed 64-bit integer that equals `number` modulo $2^{64}$."""
    return number - 2**64 * (number >= 2**63)


def powers(count: int, device: torch.device) -> Tensor:
    """Return the first `count` powers of `FACTOR` modulo $2^{64}$, by repeated doubling."""
    found, step = torch.ones(1, dtype=torch.long, device=device), FACTOR
    while len(found) < count:
        found, step = torch.cat([found, found * signed(step)]), step * step % 2**64
    return found[:count]


class Digest:
    """A hash of the ids that each batch row has seen, without padding, on the device of the ids.

    An id $i$ changes the hash $h$ to $A h + i + 1$ modulo $2^{64}$, where $A$ is `FACTOR`.
    """

    def __init__(self, number: Tensor | int = 0) -> None:
        self.number = number

    def extend(self, ids: Tensor, real: Tensor | None) -> "Digest":
        """Return the digest after more ids.

        Args:
            ids: the ids of each row.
            real: which of them are not padding; None where none is padding.
        """
        if not ids.shape[1]:
            return self
        number = self.number
        count = ids.shape[1]
        terms = ids.long() + 1
        if real is None:
            if count > 1:
                terms = terms * powers(count, ids.device).flip(0)
            return Digest(number * signed(pow(FACTOR, count, 2**64)) + terms.sum(-1))
        behind = real.flip(-1).cumsum(-1).flip(-1)  # real tokens from here to the end
        table = powers(count + 1, ids.device)
        terms = terms * table[(behind - 1).clamp(min=0)] * real
        return Digest(number * table[behind[:, 0]] + terms.sum(-1))

    def select_rows(self, rows: Tensor) -> "Digest":
        """Return the digest of the given batch rows."""
        return self if isinstance(self.number, int) else Digest(self.number[rows])

    def equals(self, other: "Digest") -> bool:
        """Return whether two digests are equal, so that the ids were the same."""
        return bool((torch.as_tensor(self.number) == torch.as_tensor(other.number)).all())


class AttendingCache(Cache, CallAwareCache):
    """A cache of layers that compute their own attention, with its size in bytes.

    It records which tokens were padding, the next position of each row, a digest of the ids and
    which model read them. Every call of a model is checked against this record.
    """

    layers: list[Any]
    evicts = False
    """Whether it stores exact entries of single tokens, some of them evicted."""

    def __init__(self, config: Any, whole: Callable[[], AttendingLayer]) -> None:
        layers, self.states = build_layers(config, whole)
        super().__init__(layers=layers)
        self.carries = True
        self.before: dict[int, Any] = {}
        """Recurrent states before the last call, if that call brought one token, which can then be
        removed."""
        self.valid: Tensor | None = None
        self.ends: list[int] = []
        self.ahead: list[int] = []
        """For each row, the position of the next text token minus the number of tokens before it.

        Not zero where images were read."""
        self.stepped = False
        """Whether the last call brought one token that continues every row."""
        self.looked: tuple[str, ...] = ()
        """Names of the inputs that were read besides ids."""
        self.digest: Digest | None = Digest()
        self.reader: int | None = None

    def copy_record(self, other: "AttendingCache") -> None:
        """Take over the record of the tokens that another cache has seen."""
        for name in ("valid", "ends", "ahead", "looked", "digest", "reader", "carries"):
            setattr(self, name, getattr(other, name))

    @property
    def nbytes(self) -> int:
        """Bytes of every storage that layers and mask keep alive; a digest adds 8 bytes per row."""
        return optimized.stored_bytes([self.layers, self.states, self.before, self.valid])

    @property
    def max_cache_len(self) -> int:
        """Raise an error: only an adapter reads this, to replace the cache by one of its own."""
        raise unsupported("prefix tuning", "generate without the adapter")

    def store_hidden(self, layer: int, hidden: Tensor) -> None:
        """Store the hidden states at the input of a layer's attention until it attends."""
        if isinstance(self.layers[layer], AttendingLayer):
            vars(self.layers[layer])["hidden"] = hidden

    def prepare_call(self, decoder: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return a call's inputs with mask and positions, after checks against the tokens seen.

        Where a call brings the tokens seen and no new one, the last of them is read again.
        """
        seen = self.get_seq_length()
        counting = [layer for layer in self.layers if isinstance(layer, CacheLayerMixin)]
        if any(x.get_seq_length() != seen or vars(x).get("arriving") for x in counting):
            raise ValueError(
                "past_key_values must hold what a whole call of an attached model left, got "
                "entries that were put there by `update` (as prefix tuning does) or by a call that "
                "failed: make a new cache"
            )
        new = inputs.get("input_ids")
        new = inputs["inputs_embeds"] if new is None else new
        if not new.shape[1]:
            raise ValueError(
                f"input_ids must hold the {seen} tokens that the cache has seen and new ones "
                "behind them, got no new one; a model called without `generate` takes only new ones"
            )
        if isinstance(inputs.get("attention_mask"), dict):  # one mask for each kind of layer
            inputs["attention_mask"] = flags_of(inputs["attention_mask"], seen, new.shape[1])
        checks.require_batch_token_mask(inputs.get("attention_mask"))
        if seen:
            checks.require_batch_size(new, len(self.ends))
            if self.repeats_exactly(new.shape[1], inputs):
                seen, new = seen - 1, self.read_last_again(inputs, new)
        if seen and self.repeats_and_continues(inputs.get("input_ids")):
            raise ValueError(
                f"input_ids must be the new ids alone, got the {seen} in the cache once more in "
                "front of them: give `input_ids[:, cache.get_seq_length():]`; `generate` takes all"
            )
        mask, given, count = inputs.get("attention_mask"), inputs.get("position_ids"), new.shape[1]
        steady = self.repeats_last_step(mask, given, new, seen)
        for layer in self.layers:
            if isinstance(layer, AttendingLayer):
                layer.steady = steady
        places = self.continued_positions(mask, given, new, seen, steady)
        if places is not None:
            valid, real, gone, ahead = self.valid, None, [], self.ahead
            if valid is not None:
                valid = torch.cat([valid[:, :seen], valid.new_ones(new.shape[:2])], 1)
            self.admit(count, None, seen)
            ends = [end + count for end in self.ends]
        else:
            valid, gone = self.mask_with_new(mask, new, seen)
            real = None if valid is None else valid[:, seen:]
            self.admit(count, real, seen)
            before = [end - left for end, left in zip(self.ends, gone, strict=True)] if seen else []
            every = new.new_ones(new.shape[:2], dtype=torch.bool) if real is None else real
            places, ends, ahead = self.new_positions(given, every, before)
        after = max(map(sum, zip(ends, ahead, strict=True)))
        checks.require_learned_positions(decoder, after)
        if seen:
            rotary = getattr(decoder, "rotary_emb", None)
            checks.reject_changing_rotation(rotary, max(self.ends), after)
        self.stepped = bool(seen) and count == 1 and ends == [end + 1 for end in self.ends]
        self.valid, self.ends, self.ahead = valid, ends, ahead
        named = inputs.get("input_ids") is not None and not any(gone)
        self.digest = self.digest.extend(new, real) if self.digest is not None and named else None
        return inputs | {"attention_mask": valid, "position_ids": places}

    def read_last_again(self, inputs: dict[str, Any], ids: Tensor) -> Tensor:
        """Remove the last token seen; reduce a call's inputs to it, and return its id."""
        self.take_back()
        known = None if self.valid is None else self.valid[:, : ids.shape[1] - 1]
        named = self.digest is not None and inputs.get("input_ids") is not None
        self.digest = Digest().extend(ids[:, :-1], known) if named else None
        self.ends = [end - 1 for end in self.ends]
        for name in ("input_ids", "inputs_embeds"):
            if inputs.get(name) is not None:
                inputs[name] = inputs[name][:, -1:]
        inputs["position_ids"] = inputs["position_ids"][..., -1:]
        return ids[:, -1:]

    def repeats_and_continues(self, ids: Tensor | None) -> bool:
        """Return whether ids begin with all ids seen, and new ones follow."""
        seen = self.get_seq_length()
        if ids is None or self.digest is None or ids.shape[1] <= seen:
            return False
        known = None if self.valid is None else self.valid[:, :seen]
        return self.digest.equals(Digest().extend(ids[:, :seen], known))

    def repeats_last_step(
        self, mask: Tensor | None, given: Tensor | None, new: Tensor, seen: int
    ) -> bool:
        """Return whether a call brings one more token on a GPU, by its shapes, after such a call.

        The mask and positions of the first of these calls were checked, and the values in layers.
        A check of another one would wait for the GPU.
        """
        rows = len(new)
        whole = mask is None or mask.shape == (rows, seen + 1)
        counted = given is None or given.shape in ((1, 1), (rows, 1))
        return self.stepped and new.is_cuda and new.shape[1] == 1 and whole and counted

    def continued_positions(
        self, mask: Tensor | None, given: Tensor | None, new: Tensor, seen: int, steady: bool
    ) -> Tensor | None:
        """Return the positions of new tokens, where no row has padding and positions continue.

        Returns None where that does not hold or is not cheap to check. Nearly every call of one
        token takes this path, and the host then waits for two values of the device at most; for
        none where the call is known to be `steady`, and rows may be padded there.
        """
        rows, count = new.shape[:2]
        if not seen or (self.valid is not None and not steady):
            return None
        whole = steady or mask is None or mask.shape == (rows, seen + count)
        if not whole or not (steady or mask is None or bool((mask == 1).all())):
            return None
        if given is None:
            starts = torch.tensor(self.ends, device=new.device)[:, None]
            return self.add_lead(starts + torch.arange(count, device=new.device))
        if given.shape[1:] != (count,) or len(given) not in (1, rows):
            return None
        places = given.expand(rows, count)
        if steady:
            return self.add_lead(places)
        told = [[*range(end, end + count)] for end in self.ends]
        return self.add_lead(places) if places.tolist() == told else None

    def add_lead(self, places: Tensor) -> Tensor:
        """Return positions of text behind images from the numbers of the tokens."""
        if not any(self.ahead):
            return places
        return places + torch.tensor(self.ahead, device=places.device)[:, None]

    def repeats_exactly(self, count: int, inputs: dict[str, Any]) -> bool:
        """Return whether a call brings exactly the tokens seen, as `generate` passes them."""
        mask, places = inputs.get("attention_mask"), inputs.get("position_ids")
        if count != self.get_seq_length() or places is None:
            return False
        counted = places if places.ndim == 2 else places[0]
        last = (counted[:, -1] + 1).expand(len(self.ends)).tolist()
        if places.ndim == 3 and len(places) != WITH_TEXT:
            last = [one - lead for one, lead in zip(last, self.ahead, strict=True)]
        return last == self.ends and (mask is None or mask.shape[1] == count)

    def mask_with_new(
        self, mask: Tensor | None, new: Tensor, seen: int
    ) -> tuple[Tensor | None, list[int]]:
        """Return a mask of the tokens that are not padding, and how many each row withdraws.

        The mask covers tokens seen and new ones; it is None where nothing is padding. A row
        withdraws tokens where the call's mask hides tokens at its end that were real before.
        """
        known, none = None if self.valid is None else self.valid[:, :seen], [0] * len(self.ends)
        if mask is None:
            if known is None:
                return None, none
            return torch.cat([known, known.new_ones(new.shape[:2])], 1), none
        checks.require_mask_of_all_tokens(mask, new.shape[0], seen + new.shape[1])
        checks.require_flags(mask, whole=False)
        valid = mask.to(torch.bool)
        gone = checks.count_hidden_tail(valid[:, :seen], known, self.evicts and not self.states)
        return None if bool(valid.all()) else valid, gone.tolist()

    def new_positions(
        self, given: Tensor | None, real: Tensor, before: list[int]
    ) -> tuple[Tensor, list[int], list[int]]:
        """Return the positions of new tokens, the next position of each row, and its lead.

        The lead is how far positions are ahead of the number of tokens.
        """
        steps = real.long().cumsum(1) - 1
        starts = torch.tensor(before or [0] * len(real), device=real.device)
        self.ahead = self.ahead if before else [0] * len(real)
        if given is not None and given.ndim == 3:
            return self.positions_on_axes(given, real, starts)
        if given is None:
            places = starts[:, None] + steps.clamp(min=0)
        else:
            places = given.expand(real.shape)
            if not before:
                starts = places.gather(1, real.long().argmax(1, keepdim=True))[:, 0]
            known = None if self.valid is None else (~self.valid).sum(-1).tolist()
            checks.require_continuing_positions(
                places, starts[:, None] + steps, real, known or [-1] * len(real)
            )
        return self.add_lead(places), (starts + real.sum(1)).tolist(), self.ahead

    def positions_on_axes(
        self, given: Tensor, real: Tensor, starts: Tensor
    ) -> tuple[Tensor, list[int], list[int]]:
        """Return the result of `new_positions`, for positions with axes of time, row and column.

        Text continues after the largest position of an image. Its positions are therefore ahead
        of, or behind, the number of tokens. A model stores this lead for its last prompt only;
        here each cache stores its own.
        """
        count = starts[:, None] + (real.long().cumsum(1) - 1).clamp(min=0)
        ends, ahead = starts + real.sum(1), self.ahead
        axes = given[1:] if len(given) == WITH_TEXT else given
        axes = axes.expand(-1, *real.shape)
        flat = bool(((axes == axes[:1]) | ~real).all())
        if flat and bool((axes[0].diff() == 1)[real[:, :-1]].all()):
            axes = self.add_lead(count).expand(axes.shape)
        else:
            largest = axes.masked_fill(~real, -1).amax((0, 2))
            ahead = (largest + 1 - ends).tolist()
        places = torch.cat([count[None], axes]) if len(given) == WITH_TEXT else axes
        return places, ends.tolist(), ahead

    def admit(self, count: int, real: Tensor | None, seen: int) -> None:
        """Refuse new tokens, or padding among them, that the cache cannot store.

        Args:
            count: how many tokens are new.
            real: which of them are not padding; None where none is padding.
            seen: how many tokens came before.
        """
        if not seen and real is not None:
            checks.require_left_padding("attention_mask", real)
        if self.states and seen and count > 1 and not self.carries:
            raise ValueError(
                "model must carry its states from call to call, got one whose states start again "
                f"when it reads {count} tokens after {seen}: read the prompt in one call, then one "
                "token at a time"
            )
        if self.states and count == 1 and real is not None and not bool(real.all()):
            raise ValueError(
                "attention_mask must be 1 in a call of one token, got 0: a model with states "
                "never treats a single token as padding"
            )

    def take_back(self) -> None:
        """Remove the last token, so that it can be read again."""
        raise ValueError(
            f"input_ids must hold a new token behind the {self.get_seq_length()} that the cache "
            "has seen, got none: append the token that the last logits predict"
        )

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.valid, self.ends, self.ahead, self.looked = None, [], [], ()
        self.stepped = False
        self.digest, self.reader = Digest(), None

    def check_model(self, reader: int, carries: bool, layers: int) -> None:
        """Refuse a model that is not the one that filled the cache.

        Args:
            reader: a number that identifies the model.
            carries: whether its recurrent states continue when a call brings several tokens.
            layers: how many layers its cache has.
        """
        if len(self.layers) != layers:
            raise ValueError(
                f"past_key_values must have {layers} layers, as the model has, got "
                f"{len(self.layers)}"
            )
        if self.reader not in (None, reader):
            raise ValueError(
                "past_key_values must be a cache that this model filled, got one of another "
                "model, or of weights that were changed since: compress the prompt again"
            )
        self.reader, self.carries = reader, carries

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return a copy of a convolution state, to change in place; None before the first call."""
        return self.state(layer_idx, state_idx, "conv_states")

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return a copy of a linear-attention state, as `get_conv_state` does."""
        return self.state(layer_idx, state_idx, "recurrent_states")

    def state(self, layer: int, index: int, kind: str) -> Tensor | None:
        """Replace a state by a copy, and return the copy; None before the first call."""
        held = self.states[layer]
        return held.renew(kind, index) if held.has_previous_state[index] else None

    def update_conv_state(self, conv_states: Tensor, layer_idx: int, *at: Any, **how: Any) -> Any:
        """Update the convolution state of a layer."""
        return self.states[layer_idx].update_conv_state(conv_states, *at, **how)

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, *at: Any, **how: Any
    ) -> Any:
        """Update the linear-attention state of a layer."""
        return self.states[layer_idx].update_recurrent_state(recurrent_states, *at, **how)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select the batch rows that beam search continues."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each batch row; the copies of a row are adjacent."""
        rows = torch.arange(len(self.ends)).repeat_interleave(repeats)
        self.batch_select_indices(rows)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Select batch rows by index; an index may occur several times.

        Raises:
            NotImplementedError: the cache stores codes, whose rows cannot be selected.
        """
        if not self.evicts:
            raise unsupported(
                "rearranging rows (beams, several sequences)",
                "repeat the prompts before they are compressed, or take a system that evicts",
            )
        indices = indices.cpu()  # layers keep a part of their bookkeeping on the CPU
        for layer in {id(one): one for one in (*self.layers, *self.states.values())}.values():
            if isinstance(layer, LastingLayer):
                layer.take_rows(indices)
        rows = indices.tolist()
        self.ends, self.ahead = ([x[row] for row in rows] for x in (self.ends, self.ahead))
        self.valid = None if self.valid is None else self.valid[indices]
        self.digest = None if self.digest is None else self.digest.select_rows(indices)

    def activate_past_recording(self) -> None:
        """Raise an error: tokens cannot be removed, as assisted decoding needs."""
        raise unsupported(
            "assisted or prompt-lookup decoding",
            "leave `assistant_model` and `prompt_lookup_num_tokens` out",
        )

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error: tokens cannot be removed, as assisted decoding needs."""
        del tokens_to_remove
        self.activate_past_recording()

    def check_prefix(self, ids: Tensor, mask: Tensor | None = None) -> None:
        """Refuse ids and a mask that do not begin with those that were seen.

        Where the ids repeat each row, as for beams or several sequences of one prompt, the cache
        repeats its rows as often. The next call's mask and positions are checked.
        """
        self.stepped = False
        rows, count = len(self.ends), len(ids)
        if rows and count > rows and count % rows == 0:
            each = ids.view(rows, -1, ids.shape[1])
            if bool((each == each[:, :1]).all()):
                self.batch_repeat_interleave(count // rows)
        seen = self.get_seq_length()
        if ids.shape[1] < seen:
            raise ValueError(
                f"input_ids must begin with the {seen} tokens that the cache has seen, got "
                f"{ids.shape[1]} in all: pass `generate` every token so far, then new ones; "
                "to ask several questions about one prompt, use `cache.undone()`"
            )
        known = None if self.valid is None else self.valid[:, :seen]
        if seen and mask is not None:
            checks.count_hidden_tail(mask[:, :seen].bool(), known, self.evicts and not self.states)
        digest = self.digest if seen and len(ids) == len(self.ends) else None
        if digest is not None and not digest.equals(Digest().extend(ids[:, :seen], known)):
            raise ValueError(
                "input_ids must begin with the tokens that the cache has seen, got others: "
                "append new ids to the old ones, since a text that is encoded again may have "
                "other ids; to ask other questions about one prompt, use `cache.undone()`"
            )

    def __copy__(self) -> Self:
        """Return an independent copy; it shares tensors, which are not changed in place."""
        return deepcopy(self)

    @contextmanager
    def undone(self) -> Iterator[Self]:
        """Restore the cache, when the context ends, to its state at the start.

        Use it to ask several questions about one compressed prompt. Nothing is copied but the
        residual buffer of a HEX cache on a GPU.
        """
        for layer in self.layers:
            if isinstance(layer, LastingLayer):
                layer.settle()
        holders = [self, *self.layers, *self.states.values()]
        before = [vars(holder).copy() for holder in holders]
        try:
            yield self
        finally:
            for holder, state in zip(holders, before, strict=True):
                vars(holder).clear()
                vars(holder).update(state)
