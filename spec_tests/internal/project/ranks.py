"""Start four local processes that run distributed calls, each with its part of the heads."""

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from optimized import distributed

MOST = 4
TIMEOUT = 30
Calls = list[tuple[str | Callable[..., Any], dict[str, Any]]]


def serve(number: int, meeting: str, pipe: Any) -> None:
    """Run the calls from a pipe; send back each result or error."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=MOST)
    groups = {size: dist.new_group(range(size)) for size in range(1, MOST + 1)}
    while message := pipe.recv_bytes():
        (size, calls), answers = pickle.loads(message), []
        for name, arguments in calls:
            group = groups[size] if number < size else dist.GroupMember.NON_GROUP_MEMBER
            try:
                call = getattr(distributed, name) if isinstance(name, str) else name
                answers.append(call(**arguments, group=group))
            except (TypeError, ValueError) as error:
                answers.append(error)
        pipe.send_bytes(pickle.dumps(answers))
    dist.destroy_process_group()


class World:
    """The processes of all ranks."""

    def __init__(self, folder: str, *imported: str):
        context = get_context("forkserver")  # imports once, in a process without threads
        context.set_forkserver_preload([__name__, *imported])
        pipes = [context.Pipe() for _ in range(MOST)]
        self.pipes = [mine for mine, _ in pipes]
        meeting = str(Path(folder, "meeting"))
        self.ranks = [
            context.Process(target=serve, args=(number, meeting, theirs), daemon=True)
            for number, (_, theirs) in enumerate(pipes)
        ]
        for rank in self.ranks:
            rank.start()

    def call(self, calls: list[Calls]) -> list[list[Any]]:
        """Return, for each rank, the result of each call: of `optimized.distributed`, or any."""
        for pipe, mine in zip(self.pipes, calls, strict=False):
            # by value: multiprocessing's own pickler shares a file for each tensor
            pipe.send_bytes(pickle.dumps((len(calls), mine)))
        answers = []
        for pipe in self.pipes[: len(calls)]:
            assert pipe.poll(TIMEOUT), "a rank waits for another"
            answers.append(pickle.loads(pipe.recv_bytes()))
        return answers

    def end(self) -> None:
        """Stop all ranks."""
        for pipe in self.pipes:
            pipe.send_bytes(b"")
        for rank in self.ranks:
            rank.join(TIMEOUT)


@contextmanager
def started_ranks(*imported: str) -> Iterator[World]:
    """Start the ranks, where some modules are imported, and end them."""
    with TemporaryDirectory() as folder:
        started = World(folder, *imported)
        try:
            yield started
        finally:
            started.end()


def sharded(x: Tensor | None, heads: tuple[int, ...], axis: int = -2) -> list[Tensor | None]:
    """Return the part of a tensor that each rank holds, split by heads."""
    if x is None:
        return [None] * len(heads)
    ends = pairwise(accumulate(heads, initial=0))
    return [x.narrow(axis, start, end - start).clone() for start, end in ends]
