"""Products with codes that stay packed.

Of each byte, or of each two where codes do not fill bytes, the bits of one code are masked out and
read as the number they are, which is the code times a power of two. What comes out stays in the
order of these fields: the first of every lane, then the second of every lane. Each has a slot; a
code that goes on in the next lane has two.
"""

from functools import lru_cache
from math import lcm
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized.vector.hex.packing import as_bytes

CODES = 2**17
"""How many codes become numbers at one time: as many as a core's own cache holds."""

LANES = {8: (torch.uint8, torch.uint8), 16: (torch.int16, torch.uint16)}
"""What a lane is masked as, and what it is read as."""


class Rest(NamedTuple):
    """The field and lane of a code's upper bits, those of its lower ones, and what sets them apart.

    Upper bits are worth `times` as much.
    """

    here: tuple[int, int]
    begun: tuple[int, int]
    times: float


class Fields(NamedTuple):
    """Which bits of a lane belong to which code, in a stream of codes of one width.

    After `period` lanes of `size` bits, which hold `codes` codes, all begins anew. Of each field
    there is a mask for each lane of a period, 0 where it has none; what is masked out is worth
    `base` times `worth` codes.
    """

    size: int
    period: int
    codes: int
    code: Tensor
    masks: tuple[tuple[int, ...], ...]
    base: tuple[float, ...]
    worth: Tensor
    rests: tuple[Rest, ...]


@lru_cache
def fields(bits: int) -> Fields:
    """Cut the lanes of a stream where codes begin and end."""
    size = 8 if 8 % bits == 0 else 16
    period, codes = lcm(size, bits) // size, lcm(size, bits) // bits
    # where a code begins before a lane, this is positive
    before = size * torch.arange(period)[:, None] - bits * torch.arange(codes)
    within = before[..., None] + torch.arange(size)
    masks = ((within >= 0) & (within < bits)).long() @ 2 ** torch.arange(size)
    rank = (masks > 0).long().cumsum(1).masked_fill(masks == 0, 0)
    shape = int(rank.max()), period
    lane, held = masks.nonzero(as_tuple=True)
    place = rank[lane, held] - 1, lane
    code = torch.full(shape, -1).index_put(place, held)
    mask = torch.zeros(shape, dtype=torch.long).index_put(place, masks[lane, held])
    worth = torch.zeros(shape).index_put(place, 2.0 ** before[lane, held])
    base = worth.masked_fill(worth == 0, torch.inf).amin(1)
    begun, rests = {}, []
    for here in zip(*(x.tolist() for x in place), strict=True):
        first = begun.setdefault(int(code[here]), here)
        if first != here:
            rests.append((here, first))
    # the highest bit of a lane is its sign while it is masked
    mask = mask.where((mask < 2**15) | (size == 8), mask - 2**16)
    worth = worth / base[:, None]
    some = tuple(map(tuple, mask.tolist())), tuple(base.tolist())
    ends = tuple(Rest(*two, float(worth[two[0]] / worth[two[1]])) for two in rests)
    return Fields(size, period, codes, code, *some, worth, ends)


@lru_cache(maxsize=64)
def along(mask: tuple[int, ...], length: int, device: torch.device) -> Tensor | int:
    """Repeat a mask for each lane of a period along a stretch."""
    if len(mask) == 1:
        return mask[0]
    return torch.tensor(mask, dtype=torch.int16, device=device).repeat(length // len(mask))


class Slots(NamedTuple):
    """Where the tokens of a stream lie: field after field, in each the lanes.

    A slot has its token, and the worth of what lies there, 0 where nothing does. Not to be read are
    those `unread`: all but one of each token.
    """

    of_token: Tensor
    token: Tensor
    worth: Tensor
    unread: Tensor | None


@lru_cache(maxsize=64)
def slots(bits: int, length: int, device: torch.device) -> Slots:
    """Lay out the tokens of a stream."""
    cut, periods = fields(bits), -(-length // fields(bits).codes)
    token = cut.code[:, None] + cut.codes * torch.arange(periods)[:, None]
    lacking = (cut.code < 0)[:, None] | (token >= length)
    worth = cut.worth[:, None].expand(token.shape).masked_fill(lacking, 0)
    unread = lacking.clone()
    for (field, lane), *_ in cut.rests:
        unread[field, :, lane] = True
    token = token.masked_fill(lacking, 0).flatten()
    read = (~unread).flatten().nonzero()[:, 0]
    of_token = read[token[read].argsort()]
    return Slots(
        of_token.to(device),
        token.to(device),
        worth.flatten().to(device),
        unread.flatten().to(device) if bool(unread.any()) else None,
    )


class Stream(NamedTuple):
    """The codes of many rows, a stream of lanes each: `[heads, channels, lanes]`."""

    lanes: Tensor
    fields: Fields
    slots: Slots

    @classmethod
    def of(cls, words: Tensor, bits: int, length: int) -> "Stream":
        """Read words as lanes, as many as the periods of the codes take."""
        cut = fields(bits)
        lanes = as_bytes(words).view(LANES[cut.size][0])
        count = -(-length // cut.codes) * cut.period
        if count > lanes.shape[-1]:
            lanes = F.pad(lanes, (0, count - lanes.shape[-1]))
        return cls(lanes[..., :count], cut, slots(bits, length, words.device))

    def stretches(self) -> list[tuple[int, int]]:
        """Return from where to where lanes become numbers at one time."""
        (heads, channels, count), period = self.lanes.shape, self.fields.period
        step = max(1, CODES // max(1, heads * channels * period)) * period
        return [(start, min(count, start + step)) for start in range(0, count, step)]

    def plane(self, field: int, start: int, stop: int, scratch: Tensor) -> Tensor:
        """Return one field of a stretch, as numbers in one place."""
        some = self.lanes[..., start:stop]
        masked = some & along(self.fields.masks[field], stop - start, some.device)
        number = scratch[: masked.numel()].view(masked.shape)
        return number.copy_(masked.view(LANES[self.fields.size][1]))

    def scratch(self, like: Tensor) -> Tensor:
        """Return room for the numbers of a stretch."""
        rows, longest = self.lanes.shape[:2].numel(), self.stretches()[:1]
        return like.new_empty(rows * sum(stop for _, stop in longest))

    def before(self, queries: Tensor) -> Tensor:
        """Multiply queries, `[heads, queries, channels]`, by the codes in all slots."""
        cut, scratch, count = self.fields, self.scratch(queries), self.lanes.shape[-1]
        scaled = [queries * base for base in cut.base]
        products = queries.new_empty(*queries.shape[:2], len(scaled), count)
        for start, stop in self.stretches():
            for field, some in enumerate(scaled):
                found = some @ self.plane(field, start, stop, scratch)
                products[:, :, field, start:stop] = found
        found = products.flatten(2)
        if cut.period > 1:
            found *= self.slots.worth
            apart = products.unflatten(3, (count // cut.period, cut.period))
            for (field, lane), (other, begun), _ in cut.rests:
                apart[..., other, :, begun] += apart[..., field, :, lane]
        return found

    def mixed(self, weights: Tensor) -> Tensor:
        """Mix the codes in all slots under weights times the worth of each slot."""
        cut, scratch = self.fields, self.scratch(weights)
        out = weights.new_zeros(*weights.shape[:2], self.lanes.shape[1])
        split = weights.unflatten(2, (len(cut.base), self.lanes.shape[-1]))
        apart = split.unflatten(3, (self.lanes.shape[-1] // cut.period, cut.period))
        for (field, lane), (other, begun), times in cut.rests:
            apart[..., field, :, lane] = apart[..., other, :, begun] * times
        for start, stop in self.stretches():
            for field, base in enumerate(cut.base):
                plane = self.plane(field, start, stop, scratch)
                out.baddbmm_(split[:, :, field, start:stop], plane.mT, alpha=base)
        return out
