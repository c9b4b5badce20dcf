"""How lies are written down: under the law or vector that finds them out, as a change of the text.

    test_protected_tokens_read_one
      raw_where_protected: protected tokens keep their raw score
      - refined.masked_fill(protected, 1)
      + torch.where(protected, scores, refined)

Lines without a sign stand in the text before and after.
"""

import re
from collections.abc import Callable

KILLER = re.compile(r"(\S.*)\n((?:  .*\n)+)")
LIE = re.compile(r"  (\w+): (.*)\n((?:  [-+ ](?: .*)?\n)+)")


def told(lie: Callable[[str, str, str, str, str], None]) -> Callable[[str], None]:
    """Return a function that registers the lies of such a text by calls of `lie`."""

    def tell(text: str) -> None:
        rest = KILLER.sub(lambda found: LIE.sub("", found[2]), text)
        assert not rest.strip(), f"this is no lie under its killer: {rest!r}"
        for killer, lies in KILLER.findall(text):
            for name, says, change in LIE.findall(lies):
                lie(name, says, side("-", change), side("+", change), killer)

    return tell


def side(sign: str, change: str) -> str:
    """Return the text of a change that stands before it, or after it."""
    return "\n".join(line[4:] for line in change.splitlines() if line[2] in (" ", sign))
