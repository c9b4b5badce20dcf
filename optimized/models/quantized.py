"""Cache layers that store quantised tokens, and restore them to compute attention."""

from inspect import signature
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized.models.attending_layer import AttendingLayer, without_autocast
from optimized.models.attention import Softmax, dense_attention
from optimized.models.cache import AttendingCache
from optimized.models.layer import key_heads_and_width
from reference.contract.checks import one_of

QUANTIZERS = ("kivi-2", "kivi-4", "gear")


class RestoringLayer(AttendingLayer):
    """One layer that compresses the prompt in one call, and later tokens as they come.

    A batch with padding is stored row by row, since real tokens are quantised together, and rows
    have different numbers of them.
    """

    def __init__(self, kv: ModuleType) -> None:
        super().__init__()
        self.kv = kv

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens; return the attention output over exact new and restored old ones."""
        keys, values, _ = self.take_arriving()
        query = query.to(keys.dtype)
        with without_autocast(query):
            if valid is None:
                return self.answer(query, keys, values, softmax)
            new = valid[:, -query.shape[2] :]
            out = query.new_zeros(*query.shape[:-1], values.shape[-1])
            rows: list[Any] = [None] * len(new) if self.held is None else list(self.held)
            for row, flags in enumerate(new):
                real = slice(None) if self.steady else flags
                if self.steady or bool(flags.any()):
                    q, k, v = (x[row : row + 1, :, real] for x in (query, keys, values))
                    self.held = rows[row]
                    out[row : row + 1, :, real] = self.answer(q, k, v, softmax)
                    rows[row] = self.held
            self.held = tuple(rows)
            return out

    def answer(self, query: Tensor, keys: Tensor, values: Tensor, softmax: Softmax) -> Tensor:
        """Return the attention output for rows without padding, and add the new tokens."""
        if self.held is None:
            self.held = self.start(softmax.standard(query), keys, values)
            return dense_attention(query, keys, values, None, softmax)
        return self.go_on(query, keys, values, softmax)

    def go_on(self, query: Tensor, keys: Tensor, values: Tensor, softmax: Softmax) -> Tensor:
        """Return the attention output over restored tokens, then store the new ones.

        Each step takes at most `room` new tokens.
        """
        parts, start = [], 0
        while start < query.shape[2]:
            stop = min(query.shape[2], start + self.room(query.shape[2]))
            q, k, v = (x[:, :, start:stop] for x in (query, keys, values))
            both = (torch.cat(pair, 2) for pair in zip(self.read(), (k, v), strict=True))
            parts.append(dense_attention(q, *both, None, softmax))
            self.append(softmax.standard(q), k, v)
            start = stop
        return torch.cat(parts, 2)

    def room(self, new: int) -> int:
        """Return how many new tokens can be stored in one step."""
        return new

    def start(self, query: Tensor, keys: Tensor, values: Tensor) -> Any:
        """Return the stored form of the first tokens."""
        raise NotImplementedError

    def read(self) -> tuple[Tensor, Tensor]:
        """Return the restored keys and values."""
        raise NotImplementedError

    def append(self, query: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store new tokens."""
        raise NotImplementedError


class QuantizedLayer(RestoringLayer):
    """One layer of KIVI or GEAR."""

    def __init__(self, name: str, exact_outliers: bool, kv: ModuleType) -> None:
        super().__init__(kv)
        self.name, self.exact_outliers = name, exact_outliers

    def start(self, query: Tensor, keys: Tensor, values: Tensor) -> Any:
        """Return the quantised first tokens."""
        del query
        return quantize(self.name, keys, values, self.kv)

    def read(self) -> tuple[Tensor, Tensor]:
        """Return the restored keys and values."""
        return restore(self.name, self.held, self.exact_outliers, self.kv)

    def append(self, query: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store new tokens, and quantise each full group."""
        del query
        add = self.kv.gear_append if self.name == "gear" else self.kv.kivi_append
        self.held = add(self.held, keys, values)


def require_whole_groups(name: str, config: Any, kv: ModuleType) -> None:
    """Refuse heads whose channels KIVI cannot divide into groups."""
    if not name.startswith("kivi"):
        return
    group = signature(kv.kivi_prefill).parameters["group"].default
    try:
        width = key_heads_and_width(config)[1]
    except RuntimeError:  # of transformers, where layers have different widths
        return
    if width % group:
        raise ValueError(
            f"model must have heads of a multiple of {group} channels for {name!r}, whose groups "
            f"of values have {group}, got heads of {width}: 'gear' and 'kcvt-4' take any"
        )


def quantize(name: str, keys: Tensor, values: Tensor, kv: ModuleType) -> Any:
    """Return keys and values in the codes of KIVI or GEAR."""
    if name == "gear":
        return kv.gear_prefill(keys, values)
    return kv.kivi_prefill(keys, values, bits=int(name.removeprefix("kivi-")))


def restore(name: str, codes: Any, exact_outliers: bool, kv: ModuleType) -> tuple[Tensor, Tensor]:
    """Return the keys and values that codes of KIVI or GEAR restore."""
    if name == "gear":
        return kv.gear_read(codes, exact_outliers=exact_outliers)
    return kv.kivi_read(codes)


class QuantizedTransformersCache(AttendingCache):
    """The cache of a baseline quantiser of HEX, for `model.generate(past_key_values=...)`.

    The first call of the model is the prompt; later calls append tokens.

    Args:
        config: the configuration of an attached model.
        name: `"kivi-2"`, `"kivi-4"` or `"gear"`.
        exact_outliers: whether GEAR's correction leaves outliers unchanged (E-H42).
        kv: `reference` or `optimized`.

    Raises:
        ValueError: there is no such quantiser.
    """

    def __init__(
        self, config: Any, name: str, exact_outliers: bool = False, kv: ModuleType = optimized
    ) -> None:
        one_of("name", name, QUANTIZERS)
        require_whole_groups(name, config, kv)
        super().__init__(config, lambda: QuantizedLayer(name, exact_outliers, kv))
