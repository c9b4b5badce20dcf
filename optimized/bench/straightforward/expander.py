"""Plain ways to the graphs of HEX's masks."""

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.rows import Inputs, row

CHANNELS, DEGREE = 1024, 32
SHAPE = "{} tokens, 1024 channels, 32 of them kept"
SMALL = 1024
"""The most tokens whose graph's spectrum is computed as a whole."""


def pairs(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the channels of each token: shifted alike, and no expander."""
    del dtype
    first = torch.arange(tokens)[:, None] * 7
    return dict(pairs=(first + 31 * torch.arange(DEGREE)) % CHANNELS, channels=CHANNELS)


def mask_alone(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a random mask of 32 channels a token and as many tokens a channel."""
    del dtype
    multiple = -(-tokens // DEGREE) * DEGREE
    return dict(mask=kv.random_expander(multiple, CHANNELS, DEGREE).mask)


@row(pairs, SHAPE)
def biadjacency(pairs: Tensor, channels: int) -> Tensor:
    """Scatter."""
    return torch.zeros(len(pairs), channels, dtype=torch.bool).scatter_(1, pairs, True)


@row(mask_alone, SHAPE)
def second_singular_value(mask: Tensor) -> float:
    """Take the root of the Gram matrix's second eigenvalue, on the smaller side."""
    wide = mask.double()
    gram = wide.mT @ wide if len(mask) > mask.shape[1] else wide @ wide.mT
    return torch.linalg.eigvalsh(gram)[-2].sqrt().item()


@row(mask_alone, SHAPE)
def is_ramanujan(mask: Tensor) -> bool:
    """Compare the second singular value with the bound."""
    rows, columns = mask.sum(1), mask.sum(0)
    regular = bool((rows == rows[0]).all() and (columns == columns[0]).all())
    bound = (rows[0] - 1).sqrt() + (columns[0] - 1).sqrt()
    return regular and second_singular_value(mask) <= bound.item()


@row(mask_alone, SHAPE, 4096)
def bipartite_adjacency(mask: Tensor) -> Tensor:
    """Write the mask and its transpose into zeros."""
    tokens, channels = mask.shape
    adjacency = mask.new_zeros(tokens + channels, tokens + channels)
    adjacency[:tokens, tokens:], adjacency[tokens:, :tokens] = mask, mask.mT
    return adjacency


@row(mask_alone, SHAPE)
def component_count(mask: Tensor) -> int:
    """Let scipy walk the graph."""
    tokens, channels = mask.shape
    rows, columns = mask.numpy().nonzero()
    graph = coo_array((rows >= 0, (rows, columns + tokens)), shape=(tokens + channels,) * 2)
    return int(connected_components(graph, directed=False)[0])


@row(mask_alone, SHAPE)
def is_connected(mask: Tensor) -> bool:
    """Count the components."""
    return component_count(mask) == 1


def circle(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the adjacency matrix of a circle with chords."""
    del dtype
    at = torch.arange(tokens)
    apart = (at[:, None] - at) % tokens
    return dict(adjacency=torch.isin(apart, torch.tensor([1, 5, tokens - 5, tokens - 1])))


@row(circle, "a graph of {} vertices", SMALL)
def spectral_gap(adjacency: Tensor) -> float:
    """Subtract from the largest eigenvalue the second or the last."""
    values = torch.linalg.eigvalsh(adjacency.double())
    return torch.minimum(values[-1] - values[-2], (values[-1] - values[0]).abs()).item()


def subset(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a graph and a tenth of its vertices."""
    return circle(tokens, dtype) | dict(subset=torch.arange(tokens) < tokens // 10)


@row(subset, "a graph of {} vertices", 4096)
def vertex_expansion(adjacency: Tensor, subset: Tensor) -> float:
    """Count the neighbours outside."""
    return ((adjacency[subset].any(0) & ~subset).sum() / subset.sum()).item()


def codes(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the codes of sub-tiles."""
    del dtype
    return dict(codes=kv.subtile_codes(tokens, 8))


@row(codes, "8 heads of 128, {} tokens")
def subtile_permutations(codes: Tensor) -> Tensor:
    """Apply two affine maps with a shift between them to all channels."""
    first, offset, second, last = (codes[..., None] >> shift & 255 for shift in (0, 8, 16, 24))
    images = (first * torch.arange(128) + offset) % 128
    return (second * (images ^ images >> 4) + last) % 128


def permutations(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the permutations of sub-tiles."""
    return dict(permutations=kv.subtile_permutations(**codes(tokens, dtype)))


@row(permutations, "8 heads of 128, {} tokens")
def subtile_mask(permutations: Tensor) -> Tensor:
    """Scatter each token's four channels."""
    heads, subtiles, width = permutations.shape
    owned = permutations.view(heads, subtiles * 32, width // 32)
    owned = (owned + torch.arange(heads)[:, None, None] * width).movedim(0, 1).flatten(1)
    mask = torch.zeros(subtiles * 32, heads * width, dtype=torch.bool)
    return mask.scatter_(1, owned, True)


def sheets(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a mask, and a permutation of two sheets for each edge."""
    mask = kv.biadjacency(**pairs(tokens, dtype))
    turned = torch.arange(int(mask.sum())) % 3 == 0
    return dict(mask=mask, permutations=torch.stack([turned, ~turned], 1).long())


@row(sheets, SHAPE + ", two sheets", 4096)
def lift(mask: Tensor, permutations: Tensor) -> Tensor:
    """Index by edges and sheets."""
    token, channel = mask.nonzero().T
    lifted = mask.new_zeros(2 * mask.shape[0], 2 * mask.shape[1])
    at = torch.arange(2)
    lifted[2 * token[:, None] + at, 2 * channel[:, None] + permutations] = True
    return lifted


@row(sheets, SHAPE + ", two sheets", SMALL)
def new_singular_value(mask: Tensor, permutations: Tensor) -> float:
    """Subtract the base from the covering, and take the norm."""
    base = mask.double().repeat_interleave(2, 0).repeat_interleave(2, 1) / 2
    return torch.linalg.matrix_norm(lift(mask, permutations).double() - base, 2).item()


@row(mask_alone, SHAPE)
def to_csr(mask: Tensor) -> tuple[Tensor, Tensor]:
    """List the columns, and add up the counts."""
    counts = mask.sum(1).cumsum(0)
    return torch.cat([counts.new_zeros(1), counts]), mask.nonzero()[:, 1]


def rows_of(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return compressed sparse rows."""
    return kv.to_csr(**mask_alone(tokens, dtype))._asdict() | dict(channels=CHANNELS)


@row(rows_of, SHAPE)
def from_csr(offsets: Tensor, columns: Tensor, channels: int) -> Tensor:
    """Repeat the number of each row, and index."""
    mask = torch.zeros(len(offsets) - 1, channels, dtype=torch.bool)
    mask[torch.arange(len(mask)).repeat_interleave(offsets.diff()), columns] = True
    return mask
