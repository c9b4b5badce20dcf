"""Inputs for branches that draws reach seldom: agreement tries each of them always."""

from typing import Any

import torch

from reference import GraphSettings, HexConfig, HubSettings, QueryStatistics, Scored

ONES, NONE = torch.ones(1, 2, 3, 2), torch.zeros(1, 2, 3, dtype=torch.bool)
COUNTED = QueryStatistics(torch.tensor([2]), torch.tensor([1]), ONES[:, :, 0], ONES[:, :, :2])
SCORED = Scored(torch.arange(6.0).view(1, 2, 3) / 8, NONE)
SPAN = dict(keys=ONES, values=ONES, scored=SCORED, scope="head")


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("empty", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


CORNERS: dict[str, list[dict[str, Any]]] = dict(
    # a span that is shorter than a block; a graph of queries; an expander that is only near
    compress=[
        SPAN | dict(store=HexConfig(block=4, recent=0)),
        SPAN | dict(keep=2, refinement=GraphSettings(1, "qk"), queries=ONES),
    ],
    hubkv_compress=[
        SPAN | dict(store=HexConfig(block=1, recent=0, density=0.4, near=True), refinement=one)
        for one in (HubSettings(), HubSettings(radius=1))
    ],
    # a line that rounding leaves short of its sum; layers that share evenly; one layer
    pyramidkv_budgets=[
        dict(keep=40, layers=layers, tokens=tokens, window=8, beta=20, exact=True)
        for layers, tokens in ((4, 100), (4, torch.tensor([100, 30, 4])), (1, 100))
    ],
    query_statistics=[dict(queries=ONES, sinks=2, valid=None, past=COUNTED)],
    # seeds whose first graph is none
    ramanujan_lift=[dict(mask=~torch.eye(4, dtype=torch.bool), sheets=4, seed=6)],
    random_expander=[dict(tokens=24, channels=24, token_degree=3, seed=3, near=False)],
    subtile_expander=[dict(tokens=12, heads=3, seed=1, width=4, subtile=4)],
    # code holds nothing
    stored_bytes=[dict(object=[torch.ones(3), int, torch.ones, Slotted(torch.ones(2))])],
)
