"""The base class of the caches for `transformers`: a record of the tokens that were read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import count
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin

import optimized
from optimized.models import argument_checks as checks
from optimized.models.attending_layer import AttendingLayer, LastingLayer, require_batch_size
from optimized.models.attention import (
    UnsupportedMask,
    require_batch_token_mask,
    require_mask_of_all_tokens,
)
from optimized.models.layer import build_layers, reject_latent_attention, require_own_keys

WITH_TEXT = 4
"""Number of position axes where the first one counts tokens, as models pass them to `generate`."""


class AttendingCache(Cache):
    """A cache of layers that compute their own attention, with its size in bytes.

    It records the ids, which of them were padding, the next position of each row, and which model
    read them. Every call of a model is checked against this record.

    Args:
        config: the configuration of a model, or a cache, whose other layers are copied.
        whole: creates each layer that sees the whole text, from its index among these.
    """

    layers: list[Any]
    evicts = False
    """Whether it stores exact entries of single tokens, some of them evicted."""

    def __init__(self, config: Any, whole: Callable[[int], AttendingLayer]) -> None:
        if isinstance(config, AttendingCache):
            reject_latent_attention(any(getattr(layer, "expands", 0) for layer in config.layers))
            memo: dict[int, Any] = {}
            counted = count()
            layers: list[Any] = [
                whole(next(counted)) if isinstance(layer, AttendingLayer) else deepcopy(layer, memo)
                for layer in config.layers
            ]
            self.states = deepcopy(config.states, memo)
        else:
            layers, self.states = build_layers(config, whole)
            if not self.evicts:
                require_own_keys(config)
        super().__init__(layers=layers)
        self.carries = True
        self.forget()

    def forget(self) -> None:
        """Start an empty record."""
        self.valid: Tensor | None = None
        self.ends: list[int] = []
        self.ahead: list[int] = []
        """For each row, the position of the next text token minus the number of tokens before it.

        Not zero where images were read."""
        self.stepped = False
        """Whether the last call brought one token that continues every row."""
        self.looked: tuple[str, ...] = ()
        """Names of the inputs that were read besides ids."""
        self.ids: Tensor | None = None
        """The ids that were read; None where the model got embeddings in place of some."""
        self.reader: int | None = None
        self.kept_of_prompt: list[Tensor] | None = None
        """Which tokens of the prompt each head of each layer has kept; None where it kept all."""
        self.rolls_back = False
        """Whether `generate` may remove tokens again, as assisted decoding does."""

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.forget()

    def copy_record(self, other: "AttendingCache") -> None:
        """Take over the record of the tokens that another cache has seen."""
        for name in (
            "valid",
            "ends",
            "ahead",
            "looked",
            "ids",
            "reader",
            "carries",
            "kept_of_prompt",
        ):
            setattr(self, name, getattr(other, name))

    @property
    def nbytes(self) -> int:
        """Bytes of every storage that layers and mask keep alive, room for further tokens included.

        Not counted are ids, 8 bytes per token, and the record of `kept`, a byte on the host for
        each token of the prompt in each head.
        """
        return optimized.stored_bytes([self.layers, self.states, self.valid])

    @property
    def full_nbytes(self) -> int:
        """Bytes of a cache that holds every token seen, padding included, in the same types."""
        whole = [layer for layer in self.layers if isinstance(layer, AttendingLayer)]
        others = [layer for layer in self.layers if not isinstance(layer, AttendingLayer)]
        nbytes = optimized.stored_bytes([others, self.states])
        for layer in whole:
            keys, values = layer.whole
            stored = (keys,) if values is keys else (keys, values)
            widths = sum(x.shape[1] * x.shape[-1] * x.element_size() for x in stored)
            nbytes += len(self.ends) * layer.seen * widths
        return nbytes

    @property
    def share(self) -> float:
        """Bytes of this cache as a share of those of a full one without room for further tokens."""
        return self.nbytes / self.full_nbytes

    def kept(self) -> list[Tensor]:
        """Return which of the tokens seen are stored, exactly or in codes.

        Returns:
            For each layer that sees the whole text a mask over batch, heads and tokens. Tokens
            after the prompt are stored, padding is not. `mask[row, head].nonzero()` has positions.
        """
        layers = [layer for layer in self.layers if isinstance(layer, AttendingLayer)]
        masks = [self.real_tokens(layer) for layer in layers]
        for mask, kept in zip(masks, self.kept_of_prompt or (), strict=False):
            mask[..., : kept.shape[-1]] = kept
        return masks

    def real_tokens(self, layer: AttendingLayer) -> Tensor:
        """Return a mask over batch, heads and tokens of a layer that is True but at padding."""
        keys = layer.whole[0]
        flags = self.seen_valid
        if flags is None:
            flags = torch.ones(len(self.ends), layer.seen, dtype=torch.bool, device=keys.device)
        return flags[:, None].repeat(1, keys.shape[1], 1)

    @property
    def seen_valid(self) -> Tensor | None:
        """Which of the tokens seen are not padding; None where none is."""
        return None if self.valid is None else self.valid[:, : self.get_seq_length()]

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
            inputs["attention_mask"] = token_mask(inputs["attention_mask"], seen, new.shape[1])
        require_batch_token_mask(inputs.get("attention_mask"))
        if seen:
            require_batch_size(new, len(self.ends))
            if self.repeats_exactly(new.shape[1], inputs):
                seen, new = seen - 1, self.read_last_again(inputs, new)
            ids = inputs.get("input_ids")
            begins = ids is not None and ids.shape[1] > seen > 0 and self.begins_with_seen(ids)
            if begins is True:
                raise ValueError(
                    f"input_ids must be the new ids alone, got the {seen} in the cache once more "
                    "in front of them: give `input_ids[:, cache.get_seq_length():]`; `generate` "
                    "takes all"
                )
        mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
        count, rows = new.shape[1], len(new)
        # A check of another value would wait for the GPU.
        steady = self.stepped and new.is_cuda and count == 1
        steady = steady and (mask is None or mask.shape == (rows, seen + 1))
        steady = steady and (positions is None or positions.shape in ((1, 1), (rows, 1)))
        for layer in counting:
            if isinstance(layer, AttendingLayer):
                layer.steady = steady
        valid, hidden = self.seen_valid, [0] * rows
        continued = self.continued_positions(mask, positions, new, seen, steady)
        if continued is None and mask is not None:
            require_mask_of_all_tokens(mask, rows, seen + count)
            checks.require_flags(mask, whole=False)
            valid = mask.to(torch.bool)
            hidden = self.count_hidden_tail(valid[:, :seen])
            valid = None if bool(valid.all()) else valid
        elif valid is not None:
            valid = torch.cat([valid, valid.new_ones(rows, count)], 1)
        real = None if valid is None or continued is not None else valid[:, seen:]
        self.admit(count, real, seen)
        if continued is not None:
            ends, ahead = [end + count for end in self.ends], self.ahead
        else:
            starts = [end - n for end, n in zip(self.ends, hidden, strict=True)] if seen else []
            flags = new.new_ones(rows, count, dtype=torch.bool) if real is None else real
            continued, ends, ahead = self.new_positions(positions, flags, starts)
        after = max(map(sum, zip(ends, ahead, strict=True)))
        require_positions(decoder, max(self.ends) if seen else 0, after)
        self.stepped = bool(seen) and count == 1 and ends == [end + 1 for end in self.ends]
        self.valid, self.ends, self.ahead = valid, ends, ahead
        past = self.ids if seen else new[:, :0]
        named = inputs.get("input_ids") is not None
        self.ids = torch.cat([past, new], 1) if named and past is not None else None
        return inputs | {"attention_mask": valid, "position_ids": continued}

    def begins_with_seen(self, ids: Tensor) -> bool | None:
        """Return whether ids begin with those that were seen; None where these are unknown."""
        if self.ids is None:
            return None
        same = ids[:, : self.get_seq_length()] == self.ids
        return bool((same if self.seen_valid is None else same | ~self.seen_valid).all())

    def repeats_exactly(self, count: int, inputs: dict[str, Any]) -> bool:
        """Return whether a call brings exactly the tokens seen, as `generate` passes them."""
        mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
        if count != self.get_seq_length() or positions is None:
            return False
        counted = positions if positions.ndim == 2 else positions[0]
        ends = (counted[:, -1] + 1).expand(len(self.ends)).tolist()
        if positions.ndim == 3 and len(positions) != WITH_TEXT:
            ends = [end - lead for end, lead in zip(ends, self.ahead, strict=True)]
        return ends == self.ends and (mask is None or mask.shape[1] == count)

    def read_last_again(self, inputs: dict[str, Any], ids: Tensor) -> Tensor:
        """Remove the last token seen; reduce a call's inputs to it, and return its id."""
        self.take_last_back()
        for name in ("input_ids", "inputs_embeds"):
            if inputs.get(name) is not None:
                inputs[name] = inputs[name][:, -1:]
        inputs["position_ids"] = inputs["position_ids"][..., -1:]
        return ids[:, -1:]

    def continued_positions(
        self, mask: Tensor | None, positions: Tensor | None, new: Tensor, seen: int, steady: bool
    ) -> Tensor | None:
        """Return the positions of new tokens, where no row has padding and positions continue.

        Returns None where that does not hold or is not cheap to check. Nearly every call of one
        token takes this path, and the host then waits for two values of the device at most. A
        `steady` call waits for none: it brings one more token on a GPU, by its shapes, after such a
        call, of which mask and positions were checked; rows may be padded there.
        """
        rows, count = new.shape[:2]
        if not seen or (self.valid is not None and not steady):
            return None
        whole = steady or mask is None or mask.shape == (rows, seen + count)
        if not whole or not (steady or mask is None or bool((mask == 1).all())):
            return None
        if positions is None:
            starts = torch.tensor(self.ends, device=new.device)[:, None]
            return self.add_lead(starts + torch.arange(count, device=new.device))
        if positions.shape not in ((1, count), (rows, count)):
            return None
        expected = [[*range(end, end + count)] for end in self.ends]
        positions = positions.expand(rows, count)
        return self.add_lead(positions) if steady or positions.tolist() == expected else None

    def add_lead(self, positions: Tensor) -> Tensor:
        """Return positions of text behind images from the numbers of the tokens."""
        if not any(self.ahead):
            return positions
        return positions + torch.tensor(self.ahead, device=positions.device)[:, None]

    def count_hidden_tail(self, flags: Tensor) -> list[int]:
        """Return how many tokens at the end of each row a mask of the tokens seen hides.

        Any other change of a mask is refused.
        """
        before = torch.ones_like(flags) if self.seen_valid is None else self.seen_valid
        hidden = before & ~flags
        counts = hidden.sum(-1)
        last = hidden.flip(-1).cumprod(-1).sum(-1)
        if bool((flags & ~before).any()) or bool((counts != last).any()):
            missing = self.valid is None and bool((flags != before)[:, 0].any())
            why = ": pass the mask to `compressed`, too" if missing else ""
            raise ValueError(
                "attention_mask must not change for the tokens that the cache has seen, padding "
                f"included, got another{why}"
            )
        if bool(hidden.any()) and (self.states or not self.evicts):
            raise ValueError(
                "attention_mask must be 1 at tokens that this cache has stored, got 0 at the end "
                "of a row: only a system that evicts can hide what a row generated after its end"
            )
        return counts.tolist()

    def new_positions(
        self, given: Tensor | None, real: Tensor, before: list[int]
    ) -> tuple[Tensor, list[int], list[int]]:
        """Return the positions of new tokens, the next position of each row, and its lead.

        The lead is how far positions are ahead of the number of tokens.

        Args:
            given: the positions of the call, if any.
            real: which new tokens are not padding.
            before: the next position of each row so far; empty at the first call.
        """
        steps = real.long().cumsum(1) - 1
        starts = torch.tensor(before or [0] * len(real), device=real.device)
        self.ahead = self.ahead if before else [0] * len(real)
        if given is not None and given.ndim == 3:
            return self.positions_on_axes(given, real, starts)
        if given is None:
            positions = starts[:, None] + steps.clamp(min=0)
        else:
            positions = given.expand(real.shape)
            if not before:
                starts = positions.gather(1, real.long().argmax(1, keepdim=True))[:, 0]
            self.require_continuing(positions, starts[:, None] + steps, real)
        return self.add_lead(positions), (starts + real.sum(1)).tolist(), self.ahead

    def require_continuing(self, positions: Tensor, expected: Tensor, real: Tensor) -> None:
        """Refuse positions that do not continue in every row, and suggest the likely cause."""
        wrong = (positions != expected) & real
        if not bool(wrong.any()):
            return
        row = int(wrong.any(-1).nonzero()[0])
        got, wanted = positions[row][real[row]], expected[row][real[row]]
        first = int((got != wanted).nonzero()[0])
        padding = -1 if self.valid is None else int((~self.valid[row]).sum())
        if not bool((got.diff() == 1).all()):
            says = "sequences that are packed into one row are not supported: batch them"
        elif int(got[0] - wanted[0]) == padding:
            says = "they count the padding that the cache has read: pass the attention_mask, too"
        elif int(got[0]) == 0:
            says = "leave position_ids out, or continue from the tokens that the cache has seen"
        else:
            says = "tokens are left out; a model called without `generate` takes only new ones"
        raise ValueError(
            "position_ids must continue after the tokens that the cache has seen, at "
            f"{int(wanted[first])}, got {int(got[first])}: {says}"
        )

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
        positions = torch.cat([count[None], axes]) if len(given) == WITH_TEXT else axes
        return positions, ends.tolist(), ahead

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

    def check_prefix(self, ids: Tensor, mask: Tensor | None = None) -> None:
        """Refuse ids and a mask that do not begin with those that were seen.

        Where the ids repeat each row, as for beams or several sequences of one prompt, the cache
        repeats its rows as often. The next call's mask and positions are checked.
        """
        self.stepped = False
        rows, count = len(self.ends), len(ids)
        if rows and count > rows and count % rows == 0:
            repeats = ids.view(rows, -1, ids.shape[1])
            if bool((repeats == repeats[:, :1]).all()):
                self.batch_repeat_interleave(count // rows)
        seen = self.get_seq_length()
        if ids.shape[1] < seen:
            raise ValueError(
                f"input_ids must begin with the {seen} tokens that the cache has seen, got "
                f"{ids.shape[1]} in all: pass `generate` every token so far, then new ones; "
                "to ask several questions about one prompt, use `cache.undone()`"
            )
        if seen and mask is not None:
            self.count_hidden_tail(mask[:, :seen].bool())
        if seen and len(ids) == len(self.ends) and self.begins_with_seen(ids) is False:
            raise ValueError(
                "input_ids must begin with the tokens that the cache has seen, got others: "
                "append new ids to the old ones, since a text that is encoded again may have "
                "other ids; to ask other questions about one prompt, use `cache.undone()`"
            )

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return a copy of a convolution state, to change in place; None before the first call."""
        return self.copied_state(layer_idx, state_idx, "conv_states")

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return a copy of a linear-attention state, as `get_conv_state` does."""
        return self.copied_state(layer_idx, state_idx, "recurrent_states")

    def copied_state(self, layer: int, index: int, kind: str) -> Tensor | None:
        """Replace a state by a copy, and return the copy; None before the first call."""
        state = self.states[layer]
        return state.renew(kind, index) if state.has_previous_state[index] else None

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, *size: Any, **options: Any
    ) -> Any:
        """Update the convolution state of a layer."""
        return self.states[layer_idx].update_conv_state(conv_states, *size, **options)

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, *index: Any, **options: Any
    ) -> Any:
        """Update the linear-attention state of a layer."""
        return self.states[layer_idx].update_recurrent_state(recurrent_states, *index, **options)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select the batch rows that beam search continues."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each batch row; the copies of a row are adjacent."""
        self.batch_select_indices(torch.arange(len(self.ends)).repeat_interleave(repeats))

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
        holders = [*self.layers, *self.states.values()]
        for layer in {id(x): x for x in holders if isinstance(x, LastingLayer)}.values():
            layer.take_rows(indices)
        rows = indices.tolist()
        self.ends, self.ahead = ([x[row] for row in rows] for x in (self.ends, self.ahead))
        self.valid = None if self.valid is None else self.valid[indices]
        self.ids = None if self.ids is None else self.ids[indices]
        if self.kept_of_prompt is not None:
            self.kept_of_prompt = [mask[indices] for mask in self.kept_of_prompt]

    def activate_past_recording(self) -> None:
        """Prepare for `crop`: assisted and prompt-lookup decoding call this first.

        Raises:
            NotImplementedError: a layer cannot remove tokens.
        """
        if not all(getattr(layer, "can_remove_last", False) for layer in self.layers):
            raise unsupported(
                "removing tokens, as assisted and prompt-lookup decoding do,",
                "take a system that evicts once, and a model without windows or states, or leave "
                "`assistant_model` and `prompt_lookup_num_tokens` out",
            )
        self.rolls_back = True

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens, but none of the compressed prompt.

        Args:
            tokens_to_remove: minus the number of tokens to remove, as `transformers` passes it, or
                the number of tokens that are left.

        Raises:
            NotImplementedError: a layer cannot remove tokens.
            ValueError: tokens of the compressed prompt would be removed.
        """
        seen = self.get_seq_length()
        left = seen + tokens_to_remove if tokens_to_remove <= 0 else min(seen, tokens_to_remove)
        if left == seen:
            return
        self.activate_past_recording()
        first = max(layer.seen_before for layer in self.layers)
        if left < first:
            raise ValueError(
                f"tokens_to_remove must leave the {first} tokens of the compressed prompt, got "
                f"{tokens_to_remove}, which leaves {left} of {seen}"
            )
        for layer in self.layers:
            layer.remove_last(seen - left)
        removed = [seen - left] * len(self.ends)
        if self.valid is not None:
            removed = self.valid[:, left:seen].sum(-1).tolist()
            self.valid = self.valid[:, :left]
        self.ends = [end - n for end, n in zip(self.ends, removed, strict=True)]
        self.ids = None if self.ids is None else self.ids[:, :left]
        self.stepped = False

    def take_last_back(self) -> None:
        """Remove the last token seen, which is read again."""
        self.take_back()
        self.ids = None if self.ids is None else self.ids[:, :-1]
        self.ends = [end - 1 for end in self.ends]

    @property
    def max_cache_len(self) -> int:
        """Raise an error: only an adapter reads this, to replace the cache by one of its own."""
        raise unsupported("prefix tuning", "generate without the adapter")

    def __copy__(self) -> Self:
        """Return an independent copy; it shares tensors, which are not changed in place."""
        return deepcopy(self)

    @contextmanager
    def undone(self) -> Iterator[Self]:
        """Restore the cache, when the context ends, to its state at the start.

        Use it to ask several questions about one compressed prompt. Nothing is copied at once but
        the residual buffer of a HEX cache on a GPU; exact entries move to a buffer with room again.
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


def token_mask(masks: dict[str, Any], seen: int, new: int) -> Tensor | None:
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


def require_positions(decoder: nn.Module, before: int, after: int) -> None:
    """Refuse more tokens than a model has learned positions for, and angles that change.

    Args:
        decoder: the model's decoder.
        before: the next position before a call.
        after: the next position after it.
    """
    table: Any = getattr(decoder, "embed_positions", None)
    rotary: Any = getattr(decoder, "rotary_emb", None)
    limit = getattr(table, "num_embeddings", None)
    limit = limit - getattr(table, "offset", 0) if isinstance(limit, int) else after
    if after > limit:
        raise ValueError(
            "input_ids must have no more tokens than the model has learned positions for, "
            f"{limit}, got {after}; repeats by KVzip count, too"
        )
    kind: Any = getattr(rotary, "rope_type", "default")
    if not isinstance(kind, str):  # one for each kind of layer
        kind = next((name for name in kind.values() if "dynamic" in name), "default")
    changed = False
    if kind == "longrope":
        limit = rotary.config.rope_parameters["original_max_position_embeddings"]
        changed = before <= limit < after
    elif "dynamic" in kind:
        limit = rotary.original_max_seq_len
        changed = limit < after
    if before and changed:
        raise ValueError(
            f"model must rotate all keys by the same angles, got a rotary embedding {kind!r} whose "
            f"angles change beyond {limit} tokens, with {before} in the cache and {after} after "
            "this call"
        )


def unsupported(what: str, instead: str) -> NotImplementedError:
    """Return an error for an operation that compressed caches do not support."""
    return NotImplementedError(f"{what} is not supported on a compressed cache; {instead}")
