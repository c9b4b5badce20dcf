"""A layer with a recurrent state, which is not compressed."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import LinearAttentionLayer

from optimized.models.attending_layer import LastingLayer


class StateLayer(LastingLayer, LinearAttentionLayer):
    """A layer of `transformers` with a recurrent state: linear attention or a convolution.

    A model changes states in place. This layer gives it copies, so that an earlier state can be
    restored.
    """

    before: dict[str, Any] | None = None
    """Its attributes before the last call, if that call brought one token, which can then be
    removed."""

    def remember(self, count: int) -> None:
        """Store the state before a call of `count` tokens, if it can be restored."""
        vars(self).pop("before", None)
        self.before = dict(vars(self)) if count == 1 else None

    def take_back(self) -> None:
        """Remove the last token."""
        vars(self).update(self.before or {})

    def renew(self, kind: str, index: int) -> Tensor | None:
        """Replace a state by a copy, and return the copy."""
        for name, value in list(vars(self).items()):
            if isinstance(value, dict):
                vars(self)[name] = dict(value)
        states = vars(self)[kind]
        if states[index] is not None:
            states[index] = states[index].clone()
        return states[index]

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, *size: Any, **options: Any
    ) -> Tensor:
        """Update a copy of the convolution state."""
        self.renew("conv_states", state_idx)
        return super().update_conv_state(conv_states, state_idx, *size, **options)

    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **options: Any
    ) -> Tensor:
        """Update a copy of the linear-attention state."""
        self.renew("recurrent_states", state_idx)
        return super().update_recurrent_state(recurrent_states, state_idx, **options)

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        vars(self).update(rows_of_states(vars(self), rows))
        self.before = self.before and self.before | rows_of_states(self.before, rows)

    def reset(self) -> None:
        """Forget every token."""
        count = self.number_of_states
        vars(self).clear()
        type(self).__init__(self, count)


def rows_of_states(attributes: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """Return the given batch rows of a layer's convolution and recurrent states."""
    kinds = {kind: attributes[kind] for kind in ("conv_states", "recurrent_states")}
    return {
        kind: {n: None if x is None else x[rows] for n, x in states.items()}
        for kind, states in kinds.items()
    }
