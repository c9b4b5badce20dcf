"""Every causal architecture of `transformers` computes the right result here, or is refused."""

import pytest

from spec_tests.internal.models import architectures
from spec_tests.internal.models.architectures import KINDS, PAGE, load_verdicts
from spec_tests.internal.models.random_model import models, thorough, transformers

QUICK = (
    *("qwen2_moe", "llama4_text", "jamba"),
    *("mistral windowed", "mamba", "blenderbot-small", "gpt2", "diffllama", "minimax"),
    *("mimo_v2_flash", "zaya", "doge"),
)
"""Right: one that makes a mask for windows it lacks, and one of chunks. Right but for a question.
Refused: no layer that sees the whole text, half of an encoder-decoder, blocks of other names, and
attention or caches of their own."""
pytestmark = pytest.mark.skipif(
    transformers.__version__ != load_verdicts()["transformers"],
    reason="the table is of another version of transformers",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS if thorough else QUICK)
def test_a_kind_is_right_or_refused_as_the_table_has_it(kind):
    assert architectures.refusing_systems(kind) == load_verdicts()["verdicts"][kind]


def test_the_table_has_every_kind():
    assert [*load_verdicts()["verdicts"]] == [*KINDS]


def test_the_page_says_what_the_table_has():
    assert (
        architectures.page(PAGE.read_text(), architectures.page_section(load_verdicts()))
        == PAGE.read_text()
    )


def test_a_configuration_that_lists_no_layers_is_refused():
    with pytest.raises(ValueError, match=r"of its layers caches, got 'blt': .*num_hidden"):
        models.attach(architectures.build("blt"))
