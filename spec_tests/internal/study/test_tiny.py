"""The shipped models are small, and find facts that they have read."""

from random import Random

import pytest
import torch

pytest.importorskip("transformers")

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from optimized.tiny import BYTES, MODELS, WORDS, corpus, tasks, train
from optimized.tiny.corpus_tokenizer import TokenizedCorpus, single_token_words
from optimized.tiny.evaluate import needle, needle_accuracy, repeat_accuracy

ANY_TEXT = [
    "",
    " leading, trailing ",
    "def f(x):\n\treturn x  # 'quoted' n't",
    "naïve Ωμέγα 漢字 🙂 \x00\x7f",
    "<|begin|>no mark<|end|>",
    "".join(map(chr, range(0x250))),
]


@pytest.fixture(scope="module", params=MODELS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def tokenized(name):
    """Return the tokens of a model, all taken from the smaller split, which is fast to tokenise."""
    found = TokenizedCorpus(MODELS[name])
    heldout = found.split("heldout")
    setattr(found, "split", lambda _: heldout)  # noqa: B010, a method
    return found


@pytest.fixture(scope="module")
def model(name):
    return AutoModelForCausalLM.from_pretrained(MODELS[name], local_files_only=True).eval()


@pytest.mark.parametrize("text", ANY_TEXT)
def test_any_text_comes_back(tokenized, text):
    tokens = tokenized.tokenizer(text).input_ids
    assert tokens[0] == tokenized.begin
    assert tokenized.tokenizer.decode(tokens, skip_special_tokens=True) == text
    assert sum(tokenized.sizes[token] for token in tokens[1:]) == len(text.encode())


def test_facts_are_words_where_there_are_words():
    tokenized = TokenizedCorpus(WORDS)
    assert len(tokenized.words) == len(set(tokenized.words)) > 400
    assert TokenizedCorpus(BYTES).words == []
    for seed in range(50):
        (fact,) = tasks.facts(Random(seed), 1, tokenized.words)
        key, sign, value = (tokenized.ids(text) for text in (fact.key, " = ", fact.value))
        assert 1 <= len(key) <= 3
        assert 1 <= len(value) <= 3
        assert tokenized.ids(fact.stated()) == [*key, *sign, *value, *tokenized.ids("\n")]
        # Every form of the question gives the same tokens of the fact.
        assert (
            tokenized.ids(fact.question())[1:-1]
            == tokenized.ids(fact.question(restated=True))[:-1]
            == key
        )
        assert tokenized.ids(fact.answer()) == [*value, *tokenized.ids("\n")]


def test_a_word_that_a_tokenizer_does_not_know_is_none_that_it_has_whole():
    vocabulary = {"<unk>": 0} | {
        word: 1 + index for index, word in enumerate(TokenizedCorpus(WORDS).words[:120])
    }
    bare = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    bare.pre_tokenizer = Whitespace()
    whole = single_token_words(PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="<unk>"))
    assert sorted(whole) == sorted(vocabulary.keys() - {"<unk>"})


# Slightly below the figures on the models' cards, which are measured on more needles.
@pytest.mark.parametrize(("length", "least"), [(256, 0.85), (1024, 0.9)])
def test_facts_are_found(model, tokenized, length, least):
    assert needle_accuracy(model, tokenized, length, range(20)) >= least


def test_a_context_is_repeated_when_asked(model, tokenized):
    assert repeat_accuracy(model, tokenized, 512, range(3)) >= 0.7


def test_no_held_out_file_is_trained_on():
    train_files, held_out = corpus.files("train"), corpus.files("heldout")
    assert not train_files.keys() & held_out.keys()
    assert held_out
    assert all(map(corpus.is_held_out, held_out))


def test_a_needle_has_the_length_asked_for_and_can_be_read(tokenized):
    for seed in range(20):
        context, fact = needle(tokenized, seed, 512, distractors=3)
        assert len(context) == 512
        assert tokenized.tokenizer.decode(context).count("\n" + fact.stated()) <= 1
        line = tokenized.ids(fact.stated())
        assert any(context[start : start + len(line)] == line for start in range(512))


def test_a_step_draws_the_same_batch_whenever_it_is_taken(tokenized, name):
    first, again, other = (train.batch(tokenized, train.PLANS[name], step) for step in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
