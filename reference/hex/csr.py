"""A mask in compressed sparse rows."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reference.hex import errors as refuse


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

    Raises:
        TypeError: `mask` is not boolean.
        ValueError: `mask` has not two axes.

    Source:
        HEX-3.2c.
    """
    refuse.matrix("mask", mask)
    offsets, columns = [0], []
    for row in mask.tolist():
        columns += [channel for channel, kept in enumerate(row) if kept]
        offsets.append(len(columns))
    return CSR(
        torch.tensor(offsets, dtype=torch.int64, device=mask.device),
        torch.tensor(columns, dtype=torch.int64, device=mask.device),
    )


def from_csr(
    offsets: Int64[Tensor, "rows_and_one"], columns: Int64[Tensor, "entries"], channels: int
) -> Bool[Tensor, "tokens channels"]:
    """Write compressed sparse rows as a mask again.

    Args:
        offsets: where each row begins in `columns`, and where the last one ends.
        columns: the channels of each row.
        channels: number of channels, at least 0.

    Returns:
        The mask that `to_csr` was given.

    Raises:
        TypeError: `offsets` or `columns` is not int64, or `channels` not an integer.
        ValueError: `offsets` has not one axis or does not ascend from 0 to the number of columns;
            `columns` has not one axis or names a channel outside [0, channels).

    Source:
        HEX-3.2c.
    """
    refuse.csr(offsets, columns, channels)
    mask = torch.zeros(len(offsets) - 1, channels, dtype=torch.bool, device=columns.device)
    for row in range(len(mask)):
        mask[row, columns[offsets[row] : offsets[row + 1]]] = True
    return mask
