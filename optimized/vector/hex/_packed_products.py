"""Packed codes as numbers, in an order in which no code is moved.

A lane is one byte, or two bytes where the bit width does not divide 8. A field is the bits of one
code in a lane: a mask extracts it, and its value is the code times a power of two. Numbers come in
the order of fields: the first field of every lane, then the second field of every lane. A slot is
one position in that order; a code that crosses into the next lane has two slots, for its lower bits
and for its upper ones.
"""

from math import lcm
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized._cached_tensors import cached_tensors
from optimized.vector.hex.packing import as_bytes
from reference.hex.packing import word_count

CODES = 5 * 2**18
"""Codes that are numbers at a time: 5 MB, and few operators for a long cache."""


class Rest(NamedTuple):
    """A code that crosses lanes: the field and lane of its upper bits, and of its lower bits."""

    here: tuple[int, int]
    begun: tuple[int, int]


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
    return Fields(size, period, codes, code, parts, worth, tuple(Rest(*rest) for rest in rests))


@cached_tensors(64)
def bit_masks(masks: tuple[tuple[int, ...], ...], length: int, device: torch.device) -> Tensor:
    """Return each field's masks, repeated over `length` lanes; one column if the period is 1."""
    if len(masks[0]) == 1:
        return torch.tensor(masks, dtype=torch.uint8).to(device)
    period = torch.tensor(masks, dtype=torch.int16)
    return period.repeat(1, length // period.shape[1]).to(device)


class TokenSlots(NamedTuple):
    """The slots of the tokens of a stream, in the order of fields, then lanes.

    Each slot has its token. `unread` marks empty slots and second slots. The other slots are read,
    one for each token: `of_token`.
    """

    of_token: Tensor
    token: Tensor
    unread: Tensor | None


@cached_tensors(64)
def slots(bits: int, length: int, device: torch.device) -> TokenSlots:
    """Return the slots of a stream of `length` codes."""
    cut, periods = fields(bits), -(-length // fields(bits).codes)
    token = cut.code[:, None] + cut.codes * torch.arange(periods)[:, None]
    lacking = (cut.code < 0)[:, None] | (token >= length)
    unread = lacking.clone()
    for (field, lane), *_ in cut.rests:
        unread[field, :, lane] = True
    token = token.masked_fill(lacking, 0).flatten()
    read = (~unread).flatten().nonzero()[:, 0]
    of_token = read[token[read].argsort()]
    return TokenSlots(
        of_token.to(device),
        token.to(device),
        unread.flatten().to(device) if bool(unread.any()) else None,
    )


def lanes_of(words: Tensor, bits: int, length: int) -> Tensor:
    """Return the lanes of `length` codes in words, in whole periods."""
    cut, stream = fields(bits), as_bytes(words)
    lanes = stream if cut.size == 8 else stream.view(torch.int16)
    count = -(-length // cut.codes) * cut.period
    return resized(lanes, count)


def words_of(lanes: Tensor, bits: int, length: int) -> Tensor:
    """Return the words of `length` codes in lanes."""
    count = word_count(length, bits) * 32 // fields(bits).size
    return resized(lanes, count).contiguous().view(torch.int32)


def resized(rows: Tensor, length: int) -> Tensor:
    """Return rows cut to a length, or with zeros behind."""
    missing = length - rows.shape[-1]
    return F.pad(rows, (0, missing)) if missing > 0 else rows[..., :length]


def numbers(lanes: Tensor, masks: Tensor, buffer: Tensor) -> Tensor:
    """Return the bits of each field of lanes, `[..., 1, lanes]`, as numbers in a buffer."""
    masked = torch.bitwise_and(lanes, masks)
    # int16 lanes are masked as signed and converted as unsigned
    masked = masked if masked.dtype == torch.uint8 else masked.view(torch.uint16)
    return buffer[: masked.numel()].view(masked.shape).copy_(masked)
