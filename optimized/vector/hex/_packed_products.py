"""Matrix products with packed codes, without unpacking them.

A lane is one byte, or two bytes where the bit width does not divide 8. A field is the bits of one
code in a lane: a mask extracts it, and its value is the code times a power of two. Products come in
the order of fields: the first field of every lane, then the second field of every lane. A slot is
one position in that order; a code that crosses into the next lane has two slots.
"""

from collections.abc import Iterator
from math import lcm
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized._cached_tensors import cached_tensors
from optimized.vector.hex.packing import as_bytes

CODES = 2**20
"""Codes that are converted to floats at a time: 4 MB, and few operators for a long cache."""


class Rest(NamedTuple):
    """A code that crosses lanes: where its upper bits lie, and where its lower bits begin.

    `here` and `begun` are pairs of field and lane. Upper bits are worth `times` the lower ones.
    """

    here: tuple[int, int]
    begun: tuple[int, int]
    times: float


class Fields(NamedTuple):
    """The bits of each lane that belong to each code, in a stream of codes of one bit width.

    The pattern repeats every `period` lanes of `size` bits, which hold `codes` codes. Each field
    has a mask for each lane of a period, 0 where the lane has no such field. A masked value times
    its `worth` is the code.
    """

    size: int
    period: int
    codes: int
    code: Tensor
    masks: tuple[tuple[int, ...], ...]
    worth: Tensor
    rests: tuple[Rest, ...]


@cached_tensors(8)
def fields(bits: int) -> Fields:
    """Return the fields of a stream of codes of `bits` bits."""
    size = 8 if 8 % bits == 0 else 16
    period, codes = lcm(size, bits) // size, lcm(size, bits) // bits
    # where a code begins before a lane, this is positive
    before = size * torch.arange(period)[:, None] - bits * torch.arange(codes)
    within = before[..., None] + torch.arange(size)
    masks = ((within >= 0) & (within < bits)).long() @ 2 ** torch.arange(size)
    rank = (masks > 0).long().cumsum(1).masked_fill(masks == 0, 0)
    shape = int(rank.max()), period
    lane, code_of_bits = masks.nonzero(as_tuple=True)
    index = rank[lane, code_of_bits] - 1, lane
    code = torch.full(shape, -1).index_put(index, code_of_bits)
    mask = torch.zeros(shape, dtype=torch.long).index_put(index, masks[lane, code_of_bits])
    worth = torch.zeros(shape).index_put(index, 2.0 ** before[lane, code_of_bits])
    first_slot, rests = {}, []
    for here in zip(*(x.tolist() for x in index), strict=True):
        first = first_slot.setdefault(int(code[here]), here)
        if first != here:
            rests.append((here, first))
    mask = mask.where((mask < 2**15) | (size == 8), mask - 2**16)
    parts = tuple(map(tuple, mask.tolist()))
    ends = tuple(Rest(here, begun, float(worth[here] / worth[begun])) for here, begun in rests)
    return Fields(size, period, codes, code, parts, worth, ends)


@cached_tensors(64)
def bit_masks(masks: tuple[tuple[int, ...], ...], length: int, device: torch.device) -> Tensor:
    """Return each field's masks, repeated over `length` lanes; one column if the period is 1."""
    if len(masks[0]) == 1:
        return torch.tensor(masks, dtype=torch.uint8).to(device)
    period = torch.tensor(masks, dtype=torch.int16)
    return period.repeat(1, length // period.shape[1]).to(device)


class TokenSlots(NamedTuple):
    """The slots of the tokens of a stream, in the order of fields, then lanes.

    Each slot has its token and the worth of its value, 0 for an empty slot. `unread` marks empty
    slots and second slots. The other slots are read, one for each token: `of_token`.
    """

    of_token: Tensor
    token: Tensor
    worth: Tensor
    unread: Tensor | None


@cached_tensors(64)
def slots(bits: int, length: int, device: torch.device) -> TokenSlots:
    """Return the slots of a stream of `length` codes."""
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
    return TokenSlots(
        of_token.to(device),
        token.to(device),
        worth.flatten().to(device),
        unread.flatten().to(device) if bool(unread.any()) else None,
    )


class CodeLanes(NamedTuple):
    """The packed codes of many rows as lanes, `[heads, channels, lanes]`."""

    lanes: Tensor
    fields: Fields
    slots: TokenSlots

    @classmethod
    def of(cls, words: Tensor, bits: int, length: int) -> "CodeLanes":
        """View words as lanes, padded to whole periods."""
        cut = fields(bits)
        stream = as_bytes(words)
        lanes = stream if cut.size == 8 else stream.view(torch.int16)
        count = -(-length // cut.codes) * cut.period
        if count > lanes.shape[-1]:
            lanes = F.pad(lanes, (0, count - lanes.shape[-1]))
        return cls(lanes[..., :count], cut, slots(bits, length, words.device))

    def stretches(self, like: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of lanes, each with the numbers of its slots, `[heads, channels, slots]`.

        All share one buffer, so each must be used before the next is drawn. A number times the
        worth of its slot is the code.
        """
        (heads, channels, count), cut = self.lanes.shape, self.fields
        rows, planes = heads * channels, len(cut.masks)
        step = max(1, CODES // max(1, rows * planes * cut.period)) * cut.period
        size = rows * planes * min(step, count)
        numbers, masked = like.new_empty(size), self.lanes.new_empty(size)
        # int16 lanes are masked as signed and converted as unsigned
        unsigned = masked if cut.size == 8 else masked.view(torch.uint16)
        for start in range(0, max(1, count), step):
            where = slice(start, min(count, start + step))
            lanes = self.lanes[:, :, None, where]
            masks = bit_masks(cut.masks, lanes.shape[-1], lanes.device)
            here = slice(0, rows * planes * lanes.shape[-1])
            out = masked[here].view(heads, channels, planes, -1)
            torch.bitwise_and(lanes, masks, out=out)
            yield where, numbers[here].copy_(unsigned[here]).view(heads, channels, -1)

    def before(self, queries: Tensor) -> Tensor:
        """Return queries, `[heads, queries, channels]`, times the codes of all slots."""
        cut, count = self.fields, self.lanes.shape[-1]
        shape = *queries.shape[:2], len(cut.masks), -1
        parts = [torch.bmm(queries, numbers) for _, numbers in self.stretches(queries)]
        found = parts[0] if len(parts) == 1 else torch.cat([x.view(shape) for x in parts], -1)
        found = found.flatten(2).mul_(self.slots.worth)
        apart = found.view(*shape[:3], count // cut.period, cut.period)
        for (field, lane), (other, begun), _ in cut.rests:
            apart[..., other, :, begun] += apart[..., field, :, lane]
        return found

    def mixed(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the codes of all slots; the weights are overwritten."""
        cut, count = self.fields, self.lanes.shape[-1]
        out = weights.new_zeros(*weights.shape[:2], self.lanes.shape[1])
        split = weights.mul_(self.slots.worth).unflatten(2, (len(cut.masks), count))
        apart = split.unflatten(3, (count // cut.period, cut.period))
        for (field, lane), (other, begun), times in cut.rests:
            apart[..., field, :, lane] = apart[..., other, :, begun] * times
        for where, numbers in self.stretches(weights):
            out.baddbmm_(split[..., where].flatten(2), numbers.mT)
        return out
