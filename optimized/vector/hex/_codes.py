"""Products with codes that stay packed.

Of each byte, the bits of one code are masked out and read as the number they are, which is the code
times a power of two; what a code has in the next byte is another such field. All fields are
multiplied, and added up at their worth.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import lcm
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized.vector.hex.packing import as_bytes

CODES = 2**17
"""How many bytes become numbers at one time: as many as a core's own cache holds."""


class Fields(NamedTuple):
    """Which bits of a byte belong to which code, in a stream of codes of one width.

    After `period` bytes, which hold `codes` codes, all begins anew. There are fields of every byte,
    each a mask for each place in the period, and fields of the bytes at one place. `worth` has a
    row for each field and place, and a column for each code; where no code goes on in the next
    byte these are powers of two on the diagonal.
    """

    period: int
    codes: int
    everywhere: tuple[Tensor, ...]
    somewhere: tuple[tuple[int, int], ...]
    worth: Tensor
    diagonal: tuple[float, ...]


@lru_cache(maxsize=64)
def along(mask: Tensor, length: int) -> Tensor | int:
    """Repeat a mask for each place in the period along a stretch."""
    return int(mask) if len(mask) == 1 else mask.repeat(length // len(mask))


@lru_cache
def fields(bits: int, device: torch.device) -> Fields:
    """Cut the bytes of a stream where codes begin and end."""
    period, codes = lcm(8, bits) // 8, lcm(8, bits) // bits
    low = 8 * torch.arange(period)[:, None] - bits * torch.arange(codes)
    within = low[..., None] + torch.arange(8)
    masks = ((within >= 0) & (within < bits)).long() @ 2 ** torch.arange(8)
    rank = (masks > 0).long().cumsum(1).masked_fill(masks == 0, 0)
    everywhere, somewhere, worth = [], [], []
    for field in range(1, int(rank.max()) + 1):
        here = rank == field
        chosen, places = (masks * here).sum(1), here.any(1)
        if bool(places.all()):
            everywhere.append(chosen.to(torch.uint8).to(device))
        else:
            somewhere += [(int(place), int(chosen[place])) for place in places.nonzero()[:, 0]]
        worth.append((2.0**low * here)[places])
    table = torch.cat(worth)
    diagonal = tuple(table.diagonal().tolist()) if period == 1 else ()
    table = table.float().to(device)
    return Fields(period, codes, tuple(everywhere), tuple(somewhere), table, diagonal)


class Stream(NamedTuple):
    """The codes of many rows, a stream of bytes each: `[heads, channels, bytes]`."""

    bytes: Tensor
    fields: Fields
    length: int

    @classmethod
    def of(cls, words: Tensor, bits: int, length: int) -> "Stream":
        """Read words as bytes, as many as the periods of the codes take."""
        cut = fields(bits, words.device)
        stream = as_bytes(words)
        count = -(-length // cut.codes) * cut.period
        if count > stream.shape[-1]:
            stream = F.pad(stream, (0, count - stream.shape[-1]))
        return cls(stream[..., :count], cut, length)

    def planes(self, scratch: Tensor) -> Iterator[tuple[int, int, slice, Tensor]]:
        """Yield the numbers of one field of a stretch after another, in one place.

        Before them come the row of their worth, how many bytes of a period have such a field, and
        the periods of the stretch.
        """
        cut, (heads, channels, count) = self.fields, self.bytes.shape
        step = max(1, CODES // max(1, heads * channels * cut.period)) * cut.period
        for start in range(0, count, step):
            some = self.bytes[..., start : start + step]
            periods = slice(start // cut.period, (start + some.shape[-1]) // cut.period)
            row = 0
            for mask in cut.everywhere:
                field = some & along(mask, some.shape[-1])
                yield (
                    row,
                    cut.period,
                    periods,
                    scratch[: field.numel()].view(field.shape).copy_(field),
                )
                row += cut.period
            for place, mask in cut.somewhere:
                field = some[..., place :: cut.period] & mask
                number = scratch[: field.numel()].view(field.shape).copy_(field)
                yield row, 1, periods, number
                row += 1

    def scratch(self, like: Tensor) -> Tensor:
        """Return room for the numbers of a stretch."""
        rows, count = self.bytes.shape[:2].numel(), self.bytes.shape[-1]
        return like.new_empty(min(rows * count, max(CODES, rows * self.fields.period)))

    def before(self, queries: Tensor) -> Tensor:
        """Multiply queries, `[heads, queries, channels]`, by the codes of all tokens."""
        cut, count = self.fields, self.bytes.shape[-1] // self.fields.period
        products = queries.new_empty(*queries.shape[:2], count, len(cut.worth))
        scaled = (
            [queries * worth for worth in cut.diagonal]
            if cut.diagonal
            else [queries] * len(cut.worth)
        )
        for row, width, periods, plane in self.planes(self.scratch(queries)):
            found = scaled[row if cut.diagonal else 0] @ plane
            products[:, :, periods, row : row + width] = found.unflatten(-1, (-1, width))
        # a code that goes on in the next byte is the sum of two fields
        products = products if cut.diagonal else products @ cut.worth
        return products.flatten(2)[..., : self.length]

    def mixed(self, weights: Tensor) -> Tensor:
        """Mix the codes of all tokens under weights, `[heads, queries, tokens]`."""
        cut, out = self.fields, weights.new_zeros(*weights.shape[:2], self.bytes.shape[1])
        count = self.bytes.shape[-1] // cut.period
        if count * cut.codes > self.length:
            weights = F.pad(weights, (0, count * cut.codes - self.length))
        shares = weights.unflatten(-1, (count, cut.codes))
        shares = shares if cut.diagonal else shares @ cut.worth.mT
        for row, width, periods, plane in self.planes(self.scratch(weights)):
            # a batched product of strided matrices would be one product a head
            share = shares[:, :, periods, row : row + width].flatten(2).contiguous()
            out.baddbmm_(share, plane.mT, alpha=cut.diagonal[row] if cut.diagonal else 1.0)
        return out
