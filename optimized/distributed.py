"""HubKV refinement and selection with heads sharded over ranks, bit for bit as in one process.

Each rank holds some heads of every layer, `[..., heads of the rank, tokens]`, in the order of the
ranks in the group. A rank may hold none. Ranks exchange a few numbers per head and counts of
digits, never a score. The number of exchanges depends on the dtype of the scores alone.

Every rank of the group makes the same call. A call that one rank refuses raises on all of them, so
that no rank blocks.
"""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from importlib import import_module
from numbers import Real
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.distributed import ProcessGroup

import optimized
from optimized import kernels, vector
from optimized._dispatch import gpu_context
from optimized.vector.hubkv.head_calibration import variation
from optimized.vector.hubkv.refine import (
    Content,
    common_content_slice,
    content_and_mask,
    refine_by,
    slabs,
)
from optimized.vector.retain import cut, sortable
from reference.contract.enforce import compile_contract, plain, requires
from reference.contract.preconditions import budget_fits_pools, scoped
from reference.contract.types import (
    Above0,
    FiniteAbove0,
    FiniteNonNegative,
    Importance,
    NonNegative,
    OpenFraction,
    Orderable,
    Ratio,
    Scope,
    Whole,
)
from reference.hubkv.head_calibration import bounded
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.retain import kept_count, pooled, require_budget_covers_protected, unpooled

__all__ = ["head_weights", "hubkv_refine", "retain"]

DIGITS = {2: (8, 8), 4: (11, 11, 10), 8: (11, 11, 11, 11, 10, 10)}
"""Bits of each digit of a key, by the bytes of the key; each digit takes one exchange of counts."""

HUB = HubSettings()
T = TypeVar("T")

NO_HEAD, NO_STRETCH = (-2, -2), (-1, -1)  # in place of the ends of the common stretch of content


@requires(bounded)
def head_weights(
    selectivity: Importance[Tensor, "*layers heads"],
    tau: FiniteNonNegative = HUB.tau,
    minimum: FiniteAbove0 = HUB.minimum,
    maximum: float = HUB.maximum,
    *,
    group: ProcessGroup | None = None,
) -> Float[Tensor, "*layers heads"]:
    r"""Return the weights of this rank's heads, relative to the heads of all ranks.

    $$\beta_{\ell,h} = \mathrm{clip}\Bigl(\Bigl(\frac{c_{\ell,h}}{\bar c_\ell}\Bigr)^{\tau},
      \beta_{\min}, \beta_{\max}\Bigr)$$

    Args:
        selectivity: $c$ of the heads of this rank; $\bar c_\ell$ is the mean over all ranks.
        tau: exponent $\tau$.
        minimum: lower bound $\beta_{\min}$.
        maximum: upper bound $\beta_{\max}$, at least `minimum`.
        group: the ranks; by default all.

    Returns:
        The weights $\beta$ of the heads of this rank, as `optimized.head_weights` returns them for
        contiguous selectivity.

    Raises:
        ValueError: an argument differs between ranks, or this rank is not in `group`.

    Source:
        HubKV-9.
    """
    settings = dict(tau=tau, minimum=minimum, maximum=maximum)

    def hold() -> None:
        _hold_weights((selectivity,), settings)

    ranks, _ = check_on_all(group, hold, "selectivity", selectivity, -1, settings)
    everyone = ranks.gather(selectivity)
    return vector.head_weights(everyone, tau, minimum, maximum)[..., ranks.mine]


@requires(bounded)
def hubkv_refine(
    scores: Importance[Tensor, "*layers heads tokens"],
    ratio: Ratio,
    protected: Bool[Tensor, "*layers heads tokens"] | None = None,
    radius: Whole = HUB.radius,
    gamma: OpenFraction = HUB.gamma,
    tau: FiniteNonNegative = HUB.tau,
    minimum: FiniteAbove0 = HUB.minimum,
    maximum: float = HUB.maximum,
    power: Above0 = HUB.power,
    epsilon: NonNegative = HUB.epsilon,
    *,
    group: ProcessGroup | None = None,
) -> Float[Tensor, "*layers heads tokens"]:
    r"""Return the refined scores of this rank's heads, calibrated over the heads of all ranks.

    $$z_{\ell,h,i} = \begin{cases} 1 & P_{\ell,h,i} = 1 \\
      (1 - \lambda)\, s_{\ell,h,i} + \lambda\, u_{\ell,h,i} & P_{\ell,h,i} = 0 \end{cases}$$

    There are three exchanges: the number of heads of each rank, the selectivity of each head (on a
    GPU four moments per block of tokens), and whether every rank succeeded.

    Args:
        scores: importance $s$ of the heads of this rank, on the last axis but one.
        ratio: fraction $r$ of the entries that will be removed.
        protected: the mask $P$ of the heads of this rank.
        radius: half-width $k$ of the hub window.
        gamma: discount factor $\gamma$.
        tau: exponent $\tau$ of the head weights.
        minimum: lower bound of the head weights.
        maximum: upper bound of the head weights, at least `minimum`.
        power: gate exponent $p$.
        epsilon: $\epsilon$ of the selectivity.
        group: the ranks; by default all.

    Returns:
        The refined scores $z$ of the heads of this rank: bit for bit what `optimized.hubkv_refine`
        returns for the contiguous scores of all ranks on one such device.

    Raises:
        ValueError: a rank's scores are too large, an argument differs between ranks, or this rank
            is not in `group`.

    Source:
        HubKV-9, HubKV-11, HubKV-12, HubKV-13.
    """
    knobs = plain(HubSettings(radius, gamma, tau, minimum, maximum, power, epsilon))
    ratio = plain(ratio, "ratio")
    named = knobs._asdict()

    def hold() -> tuple[int, int]:
        _hold_refine((scores, ratio, protected), named)
        if not scores.shape[:-1].numel():
            return NO_HEAD
        content = common_content_slice(protected, scores.shape[-1])
        return (content.start, content.stop) if content else NO_STRETCH

    ranks, notes = check_on_all(group, hold, "scores", scores, -2, dict(ratio=ratio) | named)
    scores = scores.contiguous()
    if kernel := _kernel(scores, radius):
        with gpu_context((scores,)):
            refine = partial(kernel, scores, ratio, protected, knobs, ranks)
            return run_on_all(ranks.group, refine)
    stretches = {*notes} - {NO_HEAD}
    ends = stretches.pop() if len(stretches) == 1 else NO_STRETCH
    stretch = None if ends == NO_STRETCH else slice(*ends)
    if stretch is None and protected is None:
        protected = torch.zeros_like(scores, dtype=torch.bool)
    everyone = ranks.gather(_selectivity(scores, protected, stretch, epsilon, ranks))
    weights = vector.head_weights(everyone, tau, minimum, maximum)
    mine = torch.atleast_2d(weights[..., ranks.mine]).flatten(0, -2)

    def weigh(slab: slice, _: Content) -> Tensor:
        return mine[slab]

    settings = weigh, scores, protected, stretch, float(ratio) ** power, radius, gamma
    return run_on_all(ranks.group, partial(refine_by, *settings))


@requires(scoped)
def retain(
    scores: Orderable[Tensor, "*heads tokens"],
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: Ratio | None = None,
    scope: Scope = "head",
    group: ProcessGroup | None = None,
) -> Bool[Tensor, "*heads tokens"]:
    r"""Return which entries of this rank are kept, with pools that span the heads of all ranks.

    $$S^* = \arg\max_{S \supseteq P,\; |S| = B} \sum_{i \in S} s_i$$

    A radix selection finds a pool's last key: ranks add up their counts of each digit, then
    exchange how many entries tie with it. Together with the number of heads of each rank, that is
    4 exchanges for scores of half precision, 5 for float32, 8 for float64, and 1 in scope `"head"`.

    Args:
        scores: importance $s$ of the heads of this rank, laid out `[layers, ..., heads, tokens]`.
        protected: the set $P$ among them.
        keep: budget $B$ of every pool, over all ranks, or a tensor with a budget for each pool. In
            scope `"head"` its pools are this rank's heads; otherwise it is equal on every rank.
        ratio: removed share $r$ of what all ranks hold, instead of `keep`.
        scope: which entries form a pool, as in `optimized.retain`, over the heads of all ranks.
        group: the ranks; by default all.

    Returns:
        This rank's part of the mask of $S^*$. Of equal scores the lowest (layer, head, position)
        is kept, heads counted over all ranks.

    Raises:
        ValueError: a budget is below the protected entries of a pool, an argument differs between
            ranks, or this rank is not in `group`.

    Source:
        HubKV-1, HubKV-3, GraphKV-4.1.

    Reading:
        C1, C2, C6: as in `optimized.retain`.
    """
    budget, kept_here = keep, None
    if isinstance(keep, Tensor):
        budget = None if scope == "head" else keep.tolist()

    def hold() -> None:
        nonlocal kept_here
        _hold_retain((scores, protected), dict(keep=keep, ratio=ratio, scope=scope))
        if scope == "head":
            kept_here = optimized.retain(scores, protected, keep=keep, ratio=ratio)

    same = dict(scope=scope, ratio=ratio, keep=budget)
    ranks, _ = check_on_all(group, hold, "scores", scores, -2, same)
    if kept_here is not None:
        return kept_here
    keys = pooled(sortable(scores), scope).contiguous()
    shape, layers = keys.shape, scores.shape[0] if scope == "model" else 1
    pool = layers * sum(ranks.heads) * scores.shape[-1]
    budget_fits_pools(keep, ratio, pool, shape[:-1])
    counted = keep if ratio is None else kept_count(pool, ratio)
    budgets = torch.as_tensor(counted, device=scores.device).expand(shape[:-1])
    aside = None if protected is None else pooled(protected, scope)
    if aside is not None:
        # no score has the largest key, since plus infinity and NaN are refused
        keys = keys.masked_fill(aside, torch.iinfo(keys.dtype).max)
    keys = keys.reshape(budgets.numel(), shape[-1])
    shields = budgets.new_zeros(shape[:-1]) if aside is None else aside.sum(-1)
    last, missing, shields = _last_keys(keys, budgets.flatten(), shields.flatten(), ranks.group)
    require_budget_covers_protected(ratio, budgets, shields.view(budgets.shape))
    keys = keys.view(len(keys), layers, shape[-1] // max(1, layers))
    ties = gather_tensors((keys == last[:, None, None]).sum(-1), ranks.group).movedim(0, -1)
    before = (ties.flatten(1).cumsum(-1).view(ties.shape) - ties)[..., ranks.number]
    quota = (missing[:, None] - before).clamp(min=0).flatten()
    kept = torch.zeros_like(keys, dtype=torch.bool)
    if keys.numel():
        kept = cut(keys.flatten(0, 1), last.repeat_interleave(layers), quota)
    return unpooled(kept, scores.shape, scope)


class Ranks(NamedTuple):
    """A group, this rank's number in it, and how many heads each rank holds."""

    group: ProcessGroup
    number: int
    heads: tuple[int, ...]

    @property
    def mine(self) -> slice:
        """The indices of this rank's heads among those of all ranks."""
        end = sum(self.heads[: self.number + 1])
        return slice(end - self.heads[self.number], end)

    def gather(self, x: Tensor, axis: int = -1) -> Tensor:
        """Return the tensors of all ranks joined along the axis of heads."""
        x = x.movedim(axis, 0)
        padded = x.new_zeros(max(self.heads), *x.shape[1:])
        padded[: len(x)] = x
        everyone = gather_tensors(padded, self.group)
        parts = [part[:count] for part, count in zip(everyone, self.heads, strict=True)]
        return torch.cat(parts).movedim(0, axis).contiguous()


def check_on_all(
    group: ProcessGroup | None,
    hold: Callable[[], tuple[int, int] | None],
    name: str,
    tensor: Tensor,
    axis: int,
    same: dict[str, Any],
) -> tuple[Ranks, list[tuple[int, int]]]:
    """Check the call on all ranks; return the ranks and the result of `hold` on each of them.

    Args:
        group: the ranks; by default all.
        hold: a function that raises an error if the arguments of this rank are wrong.
        name: the argument that is sharded.
        tensor: its value.
        axis: its axis of heads; the other axes, the dtype and the kind of device must be equal on
            all ranks.
        same: the arguments that must be equal on all ranks.
    """
    if not dist.is_initialized() or dist.get_rank(group) < 0:
        raise ValueError(f"group must be an initialised group that this rank is in, got {group}")
    group = group or dist.group.WORLD
    assert group is not None
    note, error = result_or_refusal(hold)
    heads, arguments = 0, {name: None, **same}
    if error is None:
        shape = list(tensor.shape)
        heads = shape.pop(axis) if len(shape) >= -axis else 1
        arguments[name] = shape, tensor.dtype, tensor.device.type
    digests = map(digest, arguments.values())
    header = torch.tensor([error is not None, heads, *(note or (0, 0)), *digests])
    table = gather_tensors(header.to(exchange_device(group)), group).tolist()
    if any(row[0] for row in table):
        refuse(group, error)
    for column, (argument, mine) in enumerate(arguments.items(), 4):
        other = next((i for i, row in enumerate(table) if row[column] != table[0][column]), 0)
        if other:
            values = gather_objects(group, mine)
            but = ", heads apart" if argument == name else ""
            raise ValueError(
                f"{argument} must be alike on every rank{but}, "
                f"got {values[0]} on rank 0 and {values[other]} on rank {other}"
            )
    ranks = Ranks(group, dist.get_rank(group), tuple(row[1] for row in table))
    return ranks, [(row[2], row[3]) for row in table]


def run_on_all(group: ProcessGroup, work: Callable[[], Tensor]) -> Tensor:
    """Return the result of `work` on this rank; raise on every rank if it fails on one."""
    result, error = result_or_refusal(work)
    failed = torch.tensor([error is not None], dtype=torch.int32, device=exchange_device(group))
    dist.all_reduce(failed, group=group)
    if bool(failed):
        refuse(group, error)
    assert result is not None
    return result


def result_or_refusal(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return the result of `work`, or the error that refuses its arguments."""
    try:
        return work(), None
    except (TypeError, ValueError) as refusal:
        return None, refusal


def refuse(group: ProcessGroup, error: Exception | None) -> NoReturn:
    """Raise the error of this rank, or else that of the first rank that has one."""
    errors = gather_objects(group, error and (type(error), str(error)))
    if error:
        raise error
    rank, (kind, text) = next((rank, report) for rank, report in enumerate(errors) if report)
    raise kind(f"{text}, on rank {rank}")


def gather_objects(group: ProcessGroup, mine: Any) -> list[Any]:
    """Return the objects of all ranks."""
    objects: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(objects, mine, group=group)
    return objects


def gather_tensors(x: Tensor, group: ProcessGroup) -> Tensor:
    """Return the tensors of all ranks, which have one shape, stacked on a new first axis."""
    tensors = x.new_empty(dist.get_world_size(group), *x.shape)
    dist.all_gather([*tensors], x.contiguous(), group=group)
    return tensors


def exchange_device(group: ProcessGroup) -> torch.device:
    """Return the device on which the group exchanges a few numbers: the CPU if it supports it."""
    kinds = [pair.partition(":")[0] for pair in str(dist.get_backend_config(group)).split(",")]
    return torch.device("cpu" if "cpu" in kinds else kinds[0])


def digest(value: object) -> int:
    """Return a hash that differs between different values; 1 and 1.0 have the same."""
    plain = float(value) if isinstance(value, Real) else value
    return int.from_bytes(blake2b(repr(plain).encode(), digest_size=8).digest(), signed=True)


def _kernel(scores: Tensor, radius: int) -> Callable[..., Tensor] | None:
    """Return the kernel path of a refinement over ranks, or None if the kernels do not fit."""
    if not scores.is_cuda or not hasattr(kernels, "hubkv_refine"):
        return None
    home = import_module("optimized.kernels.hubkv.refine")
    return home.refine_among if home.fits(scores, radius) else None


def _selectivity(
    scores: Tensor, protected: Tensor | None, stretch: slice | None, epsilon: float, ranks: Ranks
) -> Tensor:
    """Return the selectivity of each head of this rank."""
    content = scores if stretch is None else scores[..., stretch]
    found = widen(scores.new_zeros(scores.shape[:-1]))
    if not content.numel():
        return found
    flat = found.view(-1, scores.shape[-2])
    for slab, raw, aside in slabs(scores, protected, stretch):
        rows = len(raw)
        # PyTorch splits a sum with one result over threads, which rounds differently
        if sum(ranks.heads) > 1 == raw[..., 0].numel():
            raw = raw.repeat(2, 1, 1)
            aside = None if aside is None else aside.repeat(2, 1, 1)
        content, inside = content_and_mask(raw, aside)
        flat[slab] = variation(content, epsilon, inside)[:rows]
    return found


def _last_keys(
    keys: Tensor, budgets: Tensor, shields: Tensor, group: ProcessGroup
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each pool's last kept key, how many of its ties are kept, and the sum of `shields`.

    A row holds this rank's part of the keys of a pool; `shields` counts its protected entries.
    """
    pools, least, shift = len(keys), torch.iinfo(keys.dtype).min, 8 * keys.element_size()
    pool = torch.arange(pools, device=keys.device)[:, None].expand(keys.shape)
    dtype, keys = keys.dtype, keys ^ least
    last, missing, protected = torch.zeros_like(budgets), budgets, shields
    for bits in DIGITS[keys.element_size()]:
        bins, shift = 1 << bits, shift - bits
        digit = (keys >> shift).long() & (bins - 1)
        index = (pool * bins + digit).flatten()
        counts = torch.bincount(index, minlength=pools * bins).view(pools, bins).flip(-1)
        sums = torch.cat([counts, shields[:, None]], -1)
        dist.all_reduce(sums, group=group)
        counts, protected = sums[:, :-1], sums[:, -1]
        short = counts.cumsum(-1) < missing[:, None]
        missing = missing - (counts * short).sum(-1)
        found = bins - 1 - short.sum(-1)
        last, alive = last << bits | found, digit == found[pool]
        keys, pool = keys[alive], pool[alive]
    return (last + least).to(dtype), missing, protected


_hold_weights, _hold_refine, _hold_retain = map(
    compile_contract, (head_weights, hubkv_refine, retain)
)
