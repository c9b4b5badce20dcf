"""`python -m optimized.bench.communication_volume`: count exchanges between ranks and bytes.

The bytes are those of the tensors that one of two ranks passes to collectives, not those on a
network. No time is measured.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from optimized import distributed

RANKS, RATIO = 2, 0.95
SHAPES = [(36, 1, 8, 4096), (36, 1, 8, 32768)]
DTYPES = (torch.bfloat16, torch.float32)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Return a context that records the bytes of every tensor passed to a collective."""
    sent: list[int] = []
    reduce, gather = dist.all_reduce, dist.all_gather

    def all_reduce(tensor: Tensor, **rest: Any) -> Any:
        sent.append(tensor.nbytes)
        return reduce(tensor, **rest)

    def all_gather(into: list[Tensor], tensor: Tensor, **rest: Any) -> Any:
        sent.append(tensor.nbytes)
        return gather(into, tensor, **rest)

    with patch.object(dist, "all_reduce", all_reduce), patch.object(dist, "all_gather", all_gather):
        yield sent


def rank(number: int, meeting: str) -> None:
    """Refine and select with this rank's half of the heads, and print the bytes sent."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=RANKS)
    for layers, batch, heads, tokens in SHAPES:
        for dtype in DTYPES:
            scores = torch.rand(layers, batch, heads // RANKS, tokens).to(dtype)
            with counted() as refining:
                refined = distributed.hubkv_refine(scores, RATIO)
            for scope in ("layer", "model"):
                with counted() as retaining:
                    distributed.retain(refined, ratio=RATIO, scope=scope)
                if number == 0:
                    print(
                        f"[{layers}, {batch}, {heads}, {tokens}] {dtype}, scope {scope}: "
                        f"refine {len(refining)} exchanges of {sum(refining)} bytes, "
                        f"retain {len(retaining)} of {sum(retaining)}; "
                        f"scores of a rank {scores.nbytes}"
                    )
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        spawn(rank, (f"{folder}/meeting",), RANKS)
