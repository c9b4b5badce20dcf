"""Codes of a few bits, laid side by side in 32-bit words without a gap."""

import torch
import torch.nn.functional as F
from jaxtyping import Int32, UInt8
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import indexing
from reference.contract.types import Bits, Whole


def narrow_enough(codes: Tensor, bits: int) -> None:
    """Refuse codes that need more bits."""
    indexing("codes", codes, 2**bits)


def words_for_length(words: Tensor, bits: int, length: int) -> None:
    """Refuse more or fewer words than the codes take."""
    checks.shaped("words", words, (*words.shape[:-1], word_count(length, bits)))


@requires(narrow_enough)
def pack_bits(codes: UInt8[Tensor, "*rows length"], bits: Bits) -> Int32[Tensor, "*rows words"]:
    r"""Write codes as one dense stream of bits a row.

    $$w_k = \sum_{j=0}^{31} 2^j\, \beta_{32k + j}, \qquad
      \beta_{b i + j} = \Bigl\lfloor \frac{c_i}{2^j} \Bigr\rfloor \bmod 2 \quad (0 \le j < b)$$

    Bit $j$ of code $i$ is bit $bi + j$ of the stream; bit $p$ of the stream is bit $p \bmod 32$
    of word $\lfloor p / 32 \rfloor$, bit 0 being the least significant. Bits past the end are 0.

    Args:
        codes: codes $c$, below $2^b$.
        bits: code width $b$.

    Returns:
        $\lceil b \cdot \mathrm{length} / 32 \rceil$ words a row, bit 31 being the sign: 96 codes
        of 3 bits are exactly 9 words.

    Source:
        HEX-3.4a. Ours: the paper does not say how codes are stored (E-H24).

    Reading:
        E-H24: the paper does not say how 3-bit codes are stored.
    """
    length = codes.shape[-1]
    past_the_end = 32 * word_count(length, bits) - bits * length
    words = numbers_in(F.pad(bits_of(codes, bits), (0, past_the_end)), 32)
    # bit 31 is the sign of a 32-bit word
    return torch.where(words < 2**31, words, words - 2**32).to(torch.int32)


@requires(words_for_length)
def unpack_bits(
    words: Int32[Tensor, "*rows words"], bits: Bits, length: Whole
) -> UInt8[Tensor, "*rows length"]:
    r"""Read codes back from a dense stream of bits.

    $$c_i = \sum_{j=0}^{b-1} 2^j\, \beta_{b i + j}, \qquad
      \beta_{32k + j} = \Bigl\lfloor \frac{w_k}{2^j} \Bigr\rfloor \bmod 2$$

    Args:
        words: the words $w$ of `pack_bits`.
        bits: code width $b$.
        length: number of codes a row: the words alone do not tell it.

    Returns:
        The codes $c$.

    Source:
        HEX-3.4a. Ours: the paper does not say how codes are stored (E-H24).

    Reading:
        E-H24.
    """
    return numbers_in(bits_of(words, 32)[..., : bits * length], bits).to(torch.uint8)


def word_count(length: int, bits: int) -> int:
    """Return how many 32-bit words a row of codes takes."""
    return -(-length * bits // 32)


def bits_of(numbers: Tensor, width: int) -> Tensor:
    """Return the lowest `width` bits of each number, as one stream a row."""
    places = torch.arange(width, device=numbers.device)
    return ((numbers[..., None] >> places) % 2).flatten(-2)


def numbers_in(stream: Tensor, width: int) -> Tensor:
    """Return the numbers of `width` bits each that a stream holds."""
    places = torch.arange(width, device=stream.device)
    return (stream.unflatten(-1, (stream.shape[-1] // width, width)) << places).sum(-1)
