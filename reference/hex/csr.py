"""A mask in compressed sparse rows."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import indexing
from reference.contract.types import Whole


class CSR(NamedTuple):
    """A mask by rows: row t owns columns[offsets[t] : offsets[t + 1]], ascending."""

    offsets: Int64[Tensor, "rows_and_one"]
    columns: Int64[Tensor, "entries"]


def to_csr(mask: Bool[Tensor, "tokens channels"]) -> CSR:
    """Write a mask in compressed sparse rows.

    Args:
        mask: the mask.

    Returns:
        Offsets and columns, int64. A biregular mask has evenly spaced offsets.

    Source:
        HEX-3.2c.
    """
    offsets, columns = [0], []
    for row in mask.tolist():
        columns += [channel for channel, kept in enumerate(row) if kept]
        offsets.append(len(columns))
    return CSR(
        torch.tensor(offsets, dtype=torch.int64, device=mask.device),
        torch.tensor(columns, dtype=torch.int64, device=mask.device),
    )


def ascending(offsets: Tensor, entries: int) -> None:
    """Refuse offsets that do not ascend from 0 to the number of columns."""
    if may_read_values(offsets) or not len(offsets):
        ends = offsets[[0, -1]].tolist() if len(offsets) else []
        if ends != [0, entries] or bool((offsets.diff() < 0).any()):
            raise ValueError(
                f"offsets must ascend from 0 to the number of columns = {entries}, "
                f"got {offsets.tolist()}"
            )


def of_channels(columns: Tensor, channels: int) -> None:
    """Refuse columns of no channel."""
    indexing("columns", columns, channels)


@requires(ascending, of_channels)
def from_csr(
    offsets: Int64[Tensor, "rows_and_one"], columns: Int64[Tensor, "entries"], channels: Whole
) -> Bool[Tensor, "tokens channels"]:
    """Write compressed sparse rows as a mask again.

    Args:
        offsets: where each row begins in `columns`, and where the last one ends.
        columns: the channels of each row.
        channels: number of channels.

    Returns:
        The mask that `to_csr` was given.

    Source:
        HEX-3.2c.
    """
    mask = torch.zeros(len(offsets) - 1, channels, dtype=torch.bool, device=columns.device)
    for row in range(len(mask)):
        mask[row, columns[offsets[row] : offsets[row + 1]]] = True
    return mask
