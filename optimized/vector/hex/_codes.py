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

CODES = 2**18
"""How many fields are numbers at one time: as many as a core's own cache holds."""


class Fields(NamedTuple):
    """Which bits of a byte belong to which code, in a stream of codes of one width.

    After `period` bytes, which hold `codes` codes, all begins anew. There are fields of every byte,
    each a mask for each place in the period, and fields of the bytes at one place. `worth` has a
    row for each field and place, and a column for each code.
    """

    period: int
    codes: int
    everywhere: tuple[Tensor, ...]
    somewhere: tuple[tuple[int, int], ...]
    worth: Tensor


@lru_cache
def fields(bits: int, dtype: torch.dtype, device: torch.device) -> Fields:
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
    table = torch.cat(worth).to(dtype).to(device)
    return Fields(period, codes, tuple(everywhere), tuple(somewhere), table)


class Stream(NamedTuple):
    """The codes of many rows, a stream of bytes each: `[heads, channels, bytes]`."""

    bytes: Tensor
    fields: Fields
    length: int

    @classmethod
    def of(cls, words: Tensor, bits: int, length: int, dtype: torch.dtype) -> "Stream":
        """Read words as bytes, as many as the periods of the codes take."""
        cut = fields(bits, dtype, words.device)
        stream = words.contiguous().view(torch.uint8)
        count = -(-length // cut.codes) * cut.period
        if count > stream.shape[-1]:
            stream = F.pad(stream, (0, count - stream.shape[-1]))
        return cls(stream[..., :count], cut, length)

    def stretches(self) -> list[slice]:
        """Return stretches of whole periods that are short enough."""
        count, period = self.bytes.shape[-1], self.fields.period
        step = max(1, CODES // max(1, self.bytes.shape[:2].numel() * period)) * period
        return [slice(start, min(count, start + step)) for start in range(0, count, step)]

    def planes(self, stretch: slice) -> Iterator[Tensor]:
        """Yield one field after another of a stretch, as numbers."""
        cut, some = self.fields, self.bytes[..., stretch]
        for mask in cut.everywhere:
            yield (some & mask.repeat(some.shape[-1] // cut.period)).to(cut.worth.dtype)
        for place, mask in cut.somewhere:
            yield (some[..., place :: cut.period] & mask).to(cut.worth.dtype)

    def before(self, queries: Tensor) -> Tensor:
        """Multiply queries, `[heads, queries, channels]`, by the codes of all tokens."""
        found = [
            torch.cat([self.by_period(queries @ plane, some) for plane in self.planes(some)], -1)
            for some in self.stretches()
        ]
        empty = queries.new_zeros(*queries.shape[:2], 0, len(self.fields.worth))
        products = torch.cat(found, 2) if found else empty
        return (products @ self.fields.worth).flatten(2)[..., : self.length]

    def by_period(self, product: Tensor, some: slice) -> Tensor:
        """Give each period of a stretch an axis."""
        return product.unflatten(-1, ((some.stop - some.start) // self.fields.period, -1))

    def mixed(self, weights: Tensor) -> Tensor:
        """Mix the codes of all tokens under weights, `[heads, queries, tokens]`."""
        cut, out = self.fields, weights.new_zeros(*weights.shape[:2], self.bytes.shape[1])
        count = self.bytes.shape[-1] // cut.period
        padded = F.pad(weights, (0, count * cut.codes - self.length))
        worth = padded.unflatten(-1, (count, cut.codes)) @ cut.worth.mT
        for some in self.stretches():
            here = worth[:, :, some.start // cut.period : some.stop // cut.period]
            column = 0
            for plane in self.planes(some):
                width = plane.shape[-1] // here.shape[2]
                one = here[..., column : column + width].flatten(2)
                out, column = torch.baddbmm(out, one, plane.mT), column + width
        return out
