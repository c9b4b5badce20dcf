"""The tokenizers of small models, and the facts that are made of their words."""

from random import Random

import pytest

pytest.importorskip("transformers")

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from optimized.tiny import WORDS, corpus, tasks
from optimized.tiny.corpus_tokenizer import TokenizedCorpus, single_token_words
from spec_tests.internal.study.command_runner import TOKENIZER

ANY_TEXT = [
    "",
    " leading, trailing ",
    "def f(x):\n\treturn x  # 'quoted' n't",
    "naïve Ωμέγα 漢字 🙂 \x00\x7f",
    "<|begin|>no mark<|end|>",
    "".join(map(chr, range(0x250))),
]


@pytest.fixture(scope="module", params=[WORDS, TOKENIZER], ids=["words", "bytes"])
def on(request):
    return TokenizedCorpus(request.param)


@pytest.mark.parametrize("text", ANY_TEXT)
def test_any_text_comes_back(on, text):
    tokens = on.tokenizer(text).input_ids
    assert tokens[0] == on.begin
    assert on.tokenizer.decode(tokens, skip_special_tokens=True) == text


def test_facts_are_words_where_there_are_words():
    on = TokenizedCorpus(WORDS)
    assert len(on.words) == len(set(on.words)) > 400
    assert TokenizedCorpus(TOKENIZER).words == []
    for seed in range(50):
        (fact,) = tasks.facts(Random(seed), 1, on.words)
        key, sign, value = (on.ids(text) for text in (fact.key, " = ", fact.value))
        assert 1 <= len(key) <= 3
        assert 1 <= len(value) <= 3
        assert on.ids(fact.stated()) == [*key, *sign, *value, *on.ids("\n")]
        # the question gives the same tokens of the fact
        assert on.ids(fact.question())[1:-1] == key
        assert on.ids(fact.answer()) == [*value, *on.ids("\n")]


def test_a_word_that_a_tokenizer_does_not_know_is_none_that_it_has_whole():
    vocabulary = {"<unk>": 0} | {
        word: 1 + index for index, word in enumerate(TokenizedCorpus(WORDS).words[:120])
    }
    bare = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    bare.pre_tokenizer = Whitespace()
    whole = single_token_words(PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="<unk>"))
    assert sorted(whole) == sorted(vocabulary.keys() - {"<unk>"})


def test_no_held_out_file_is_trained_on():
    train_files, held_out = corpus.files("train"), corpus.files("heldout")
    assert not train_files.keys() & held_out.keys()
    assert held_out
    assert all(map(corpus.is_held_out, held_out))
