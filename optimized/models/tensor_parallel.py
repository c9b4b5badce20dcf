"""Tensor parallelism: the heads of a model are dealt out to ranks, which make equal calls."""

from contextvars import ContextVar
from re import sub
from typing import Any
from zlib import crc32

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.utils._pytree import tree_map_only

from optimized.distributed import gather_heads, gather_objects, require_alike
from optimized.models.layer import key_heads_and_width

ALL_RANKS: ContextVar[bool] = ContextVar("ALL_RANKS", default=False)
"""Whether `compressed` reads a prompt, so that all ranks have a part in what is kept of it."""


def group_of(model: Any) -> ProcessGroup | None:
    """Return the ranks to which the heads of a model are dealt out; None if each has them all."""
    named = model.named_parameters() if isinstance(model, nn.Module) else ()
    weights: list[Any] = [x for name, x in named if ".self_attn." in name]
    placed = (x for x in weights if any(p.is_shard() for p in getattr(x, "placements", ())))
    meshes = {x.device_mesh for x in placed}
    if len(meshes) > 1 or any(x.ndim > 1 or bool((x.mesh.diff() < 0).any()) for x in meshes):
        raise ValueError(
            f"model must be sharded over one mesh, of one axis of ascending ranks, got {meshes}"
        )
    return meshes.pop().get_group() if meshes else None


def count_all_heads(group: ProcessGroup | None, heads: int, config: Any) -> int:
    """Return how many heads all ranks have together; refuse a number that no layer has."""
    text, ranks = config.get_text_config(decoder=True), 1 if group is None else group.size()
    several = text.per_layer_config if getattr(text, "is_heterogeneous", False) else [config]
    counts = {key_heads_and_width(one)[0] for one in several}
    counts.add(getattr(text, "num_global_key_value_heads", None) or max(counts))
    if dist.is_initialized() and heads * ranks not in counts:
        raise ValueError(
            f"model must deal {max(counts)} key heads out to {ranks} ranks equally, got {heads}"
        )
    return heads * ranks


def require_same_call(group: ProcessGroup | None, given: dict[str, Any]) -> None:
    """Refuse arguments that differ between ranks: tensors by a checksum, others by their text."""
    if group is not None:
        marked = tree_map_only(
            Tensor, lambda x: (x.shape, x.dtype, crc32(repr(x.tolist()).encode())), given
        )
        texts = {name: sub(" at 0x[0-9a-f]+", "", repr(x)) for name, x in marked.items()}
        require_alike(gather_objects(group, texts))


def all_heads(group: ProcessGroup | None, x: Tensor) -> Tensor:
    """Return a tensor of the heads of all ranks, on its last axis but one."""
    return x if group is None else gather_heads(group, x, -2, [x.shape[-2]] * group.size())


def own_heads(group: ProcessGroup | None, x: Tensor) -> Tensor:
    """Return the heads of this rank, of those of all ranks on the last axis but one."""
    return x if group is None else x.chunk(group.size(), -2)[group.rank()].contiguous()
