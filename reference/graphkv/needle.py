"""A needle in a haystack: a fact hidden at a depth, and how much of it an answer gives back."""

from fractions import Fraction
from itertools import product

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.types import Ratio, Whole


def room_for_needle(length: int, tokens: int, hidden: int) -> None:
    """Refuse an input shorter than the needle, or longer than needle and haystack together."""
    if not hidden <= length <= tokens + hidden:
        raise ValueError(f"length must be in [{hidden}, {tokens + hidden}], got {length}")


@requires(room_for_needle)
def hide_needle(
    haystack: Int64[Tensor, " tokens"],
    needle: Int64[Tensor, " hidden"],
    length: Whole,
    depth: Ratio,
) -> Int64[Tensor, " length"]:
    r"""Hide a fact in a text, at some depth of an input that is so long with it.

    $$x = (h_1, \dots, h_p,\; u_1, \dots, u_w,\; h_{p+1}, \dots, h_{n-w}), \qquad
      p = \lfloor \delta\,(n - w) \rfloor$$

    Args:
        haystack: tokens $h$ of the text.
        needle: the $w$ tokens $u$ of the fact.
        length: tokens $n$ of the input, at least $w$ and no more than both have together.
        depth: share $\delta$ of the text that comes before the fact.

    Returns:
        The input $x$.

    Source:
        GraphKV-Needle. From elsewhere: PyramidKV's repository, whose script measures the depth so;
        the paper draws depth and length (Fig. 4) and does not define them. The script then goes
        back to the end of a sentence, which is not done here (E-G24).

    Reading:
        E-G24: the depth percentage is a share of the text around the fact.
    """
    around = length - len(needle)
    position = int(Fraction(str(depth)) * around)
    return torch.cat([haystack[:position], needle, haystack[position:around]])


def worded(answer: Tensor) -> None:
    """Refuse an answer without words."""
    checks.not_empty("answer", answer)


@requires(worded)
def needle_recall(
    responses: Int64[Tensor, "*grid said"], answer: Int64[Tensor, " words"]
) -> Float[Tensor, "*grid"]:
    r"""Return how much of an answer each response has in it.

    $$a = \frac{\lvert R \cap A \rvert}{\lvert A \rvert}$$

    Args:
        responses: the words $R$ of each response as numbers, in any order; a shorter one is
            filled up with a number that is no word.
        answer: the words $A$ that answer the question, at least one.

    Returns:
        The share $a$ of the answer's different words in each response, in float32: a cell for
        each depth and length, whose mean is the accuracy.

    Source:
        GraphKV-Needle. From elsewhere: PyramidKV's repository, whose plot scores a cell so; the
        paper's "retrieval accuracy" (§5.3) is not defined (E-G24).

    Reading:
        E-G24: the retrieval accuracy is not defined; words count once, wherever they stand.
    """
    wanted = set(answer.tolist())
    found = torch.zeros(responses.shape[:-1], device=responses.device)
    for cell in product(*map(range, found.shape)):
        found[cell] = len(wanted & set(responses[cell].tolist())) / len(wanted)
    return found
