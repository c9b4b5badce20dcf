"""What docs/adding.md says of its example is what happens when the rule is changed."""

import doctest
import io
import re
from pathlib import Path

import torch

import reference
import reference.hubkv.discount

DOCS = Path(__file__).parent
PAGES = ("hubkv/walk.md", "hubkv/discount.md")
NUMBERS = {"three": 3}
OAK = 7
"""The place of “oak” among the words of the walk."""


def fading(scores, hubs, gamma=0.5):
    """Discount less, the farther the last hub is; before the first hub as usual."""
    at = torch.arange(scores.shape[-1])
    last = torch.where(hubs, at, -1).cummax(-1).values
    kept = torch.where(last < 0, gamma, 1 - (1 - gamma) / (at - last).clamp(min=1))
    return torch.where(hubs, scores, kept * scores)


def outcomes(page):
    """Run the examples of a page, and return how many fail, how many there are, and the report."""
    names = {}
    runner = doctest.DocTestRunner(verbose=False)
    text = (DOCS / page).read_text().replace("```\n", "\n")
    test = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
    told = io.StringIO()
    runner.run(test, out=told.write, clear_globs=False)
    return runner.failures, runner.tries, told.getvalue()


def test_the_examples_that_fail_with_another_rule_are_as_many_as_the_page_says(monkeypatch):
    said = re.search(
        r"Here (\w+) of (\d+) fail: discounted, “oak” scores (\d+) % in place of (\d+) %",
        " ".join((DOCS / "adding.md").read_text().split()),
    )
    assert said is not None
    before = [outcomes(page) for page in PAGES]
    assert [failures for failures, _, _ in before] == [0, 0]
    monkeypatch.setattr(reference.hubkv.discount, "discount", fading)
    monkeypatch.setattr(reference, "discount", fading)
    after = [outcomes(page) for page in PAGES]
    assert sum(failures for failures, _, _ in after) == NUMBERS[said[1]]
    assert sum(tries for _, tries, _ in after) == int(said[2])
    _, _, told = after[0]
    rows = re.findall(r"tensor\(\[(.*)\]\)", told)[:2]  # expected, then got, of `discounted`
    assert [row.split(",")[OAK].strip() for row in rows] == [said[4], said[3]]
