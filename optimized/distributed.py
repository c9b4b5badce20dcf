"""HubKV refinement and selection with heads sharded over ranks, bit for bit as in one process.

Each rank holds some heads of every layer, `[..., heads of the rank, tokens]`, in the order of the
ranks in the group. A rank may hold none. The scores and the mask of all heads are gathered, every
rank computes what one process would, and returns its own heads.

Every rank of the group makes the same call. A call that one rank refuses raises on all of them, so
that no rank blocks.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.distributed import ProcessGroup

import optimized
from reference.contract.enforce import compile_contract, requires, shown
from reference.contract.preconditions import scoped
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

__all__ = ["head_weights", "hubkv_refine", "retain"]

HUB = HubSettings()


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
        HubKV-9. As printed (Eq. 9); the heads lie on several ranks.
    """
    settings = dict(tau=tau, minimum=minimum, maximum=maximum)
    sharded = dict(selectivity=selectivity)
    return of_this_rank(group, optimized.head_weights, hold_weights, sharded, settings)


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
        HubKV-9, HubKV-11, HubKV-12, HubKV-13. As printed (Eq. 13); the heads lie on several ranks.
    """
    settings = dict(
        ratio=ratio, radius=radius, gamma=gamma, tau=tau, minimum=minimum, maximum=maximum,
        power=power, epsilon=epsilon,
    )  # fmt: skip
    sharded = dict(scores=scores, protected=protected)
    return of_this_rank(group, optimized.hubkv_refine, hold_refine, sharded, settings)


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
        HubKV-1, HubKV-3, GraphKV-4.1. As printed (Eq. 3 of HubKV), with $|S| = B$ (C2);
        the heads lie on several ranks.

    Reading:
        C1, C2, C6: as in `optimized.retain`.
    """
    settings: dict[str, Any] = dict(keep=keep, ratio=ratio, scope=scope)
    sharded: dict[str, Any] = dict(scores=scores, protected=protected)
    if scope == "head" and isinstance(keep, Tensor):
        sharded, settings = sharded | dict(keep=keep), dict(ratio=ratio, scope=scope)
    return of_this_rank(group, optimized.retain, hold_retain, sharded, settings)


def of_this_rank(
    group: ProcessGroup | None,
    function: Callable[..., Tensor],
    hold: Callable[..., object],
    sharded: dict[str, Any],
    settings: dict[str, Any],
) -> Tensor:
    """Return this rank's heads of what a function returns for the heads of all ranks.

    Args:
        group: the ranks; by default all.
        function: what is computed.
        hold: raises an error if arguments of this rank are wrong.
        sharded: arguments of which each rank has its heads, scores first: on the last axis of one
            number a head, and on the last but one of the others.
        settings: arguments that must be equal on all ranks.
    """
    if not dist.is_initialized() or dist.get_rank(group) < 0:
        raise ValueError(f"group must be an initialised group that this rank is in, got {group}")
    group = group or dist.group.WORLD
    assert group is not None
    main, first = next(iter(sharded.items()))
    axes = {name: -1 if name in ("selectivity", "keep") else -2 for name in sharded}

    def check() -> None:
        hold((), sharded | settings)
        if first.ndim < -axes[main]:
            raise ValueError(f"{main} must have an axis of heads, got shape {tuple(first.shape)}")

    run_alike(group, check)
    described = {main: without_heads(first, axes[main])} | {
        name: x.tolist() if isinstance(x, Tensor) else x for name, x in settings.items()
    }
    mine = first.shape[axes[main]], described, sharded.get("protected") is not None
    ranks = gather_objects(group, mine)
    require_alike([theirs for _, theirs, _ in ranks], main)
    counts = [count for count, *_ in ranks]
    if "protected" in sharded and sharded["protected"] is None and any(row[2] for row in ranks):
        sharded["protected"] = torch.zeros_like(first, dtype=torch.bool)
    whole = {
        name: None if x is None else gather_heads(group, x, axes[name], counts)
        for name, x in sharded.items()
    }
    found = function(**whole, **settings)
    number = dist.get_rank(group)
    return found.narrow(axes[main], sum(counts[:number]), counts[number]).contiguous()


def run_alike(group: ProcessGroup | None, function: Callable[[], Any]) -> Any:
    """Return the result of a function; what one rank of a group refuses, all refuse."""
    if group is None:
        return function()
    found, error = None, None
    try:
        found = function()
    except (TypeError, ValueError) as refusal:
        error = refusal
    for rank, refusal in enumerate(gather_objects(group, error)):
        if refusal is not None:
            raise error or type(refusal)(f"{refusal}, on rank {rank}")
    return found


def require_alike(ranks: list[dict[str, Any]], of_heads: str | None = None) -> None:
    """Refuse an argument that differs between ranks, by the descriptions that each rank gives."""
    for name in dict.fromkeys(name for theirs in ranks for name in theirs):
        given = [theirs.get(name, "a tensor") for theirs in ranks]
        for rank, value in enumerate(given):
            if value != given[0]:
                but = ", heads apart" if name == of_heads else ""
                raise ValueError(
                    f"{name} must be alike on every rank{but}, got {shown(given[0])} on rank 0 and "
                    f"{shown(value)} on rank {rank}"
                )


def without_heads(x: Tensor, axis: int) -> tuple[list[int], torch.dtype, str]:
    """Return the shape of a tensor without its axis of heads, its dtype and its kind of device."""
    shape = list(x.shape)
    del shape[axis]
    return shape, x.dtype, x.device.type


def gather_objects(group: ProcessGroup, mine: Any) -> list[Any]:
    """Return the objects of all ranks."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, mine, group=group)
    return found


def gather_heads(group: ProcessGroup, x: Tensor, axis: int, counts: list[int]) -> Tensor:
    """Return the heads of all ranks, joined along their axis; each rank has so many."""
    x = x.movedim(axis, 0)
    padded = x.new_zeros(max(counts), *x.shape[1:])
    padded[: len(x)] = x
    bytes_ = padded.flatten().view(torch.uint8)  # whatever the dtypes of a backend
    found = bytes_.new_empty(len(counts), len(bytes_))
    dist.all_gather([*found], bytes_, group=group)
    parts = found.view(x.dtype).view(len(counts), *padded.shape)
    joined = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
    return joined.movedim(0, axis).contiguous()


hold_weights, hold_refine, hold_retain = (
    compile_contract(function) for function in (head_weights, hubkv_refine, retain)
)
