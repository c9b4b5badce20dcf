"""The shipped model: small, byte-level, and able to find what it has read."""

from random import Random

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, AutoTokenizer

from optimized.tiny import HERE, corpus, tasks, train
from optimized.tiny.evaluate import needle, needle_accuracy, repeat_accuracy, says
from optimized.tiny.muon import orthogonal
from optimized.tiny.tokenizer import BEGIN, END

ANY_TEXT = [
    "",
    " leading, trailing ",
    "def f(x):\n\treturn x  # 'quoted' n't",
    "naïve Ωμέγα 漢字 🙂 \x00\x7f",
    "<|begin|>no mark<|end|>",
    "".join(map(chr, range(0x250))),
]


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(HERE, local_files_only=True).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(HERE, local_files_only=True)


def test_the_weights_are_at_most_eight_megabytes():
    assert (HERE / "model.safetensors").stat().st_size <= 8_000_000


def test_the_model_has_grouped_queries_and_channels_enough_for_the_expander(model):
    shape = model.config
    assert shape.model_type == "llama"
    assert shape.num_attention_heads == 2 * shape.num_key_value_heads
    assert shape.num_key_value_heads * shape.head_dim >= 128
    assert shape.max_position_embeddings == 2048
    assert model.dtype == torch.float32


@pytest.mark.parametrize("text", ANY_TEXT)
def test_a_token_is_a_byte_and_any_text_comes_back(tokenizer, text):
    tokens = tokenizer(text).input_ids
    assert tokens == [BEGIN, *text.encode()]
    assert tokenizer.decode(tokens, skip_special_tokens=True) == text


def test_the_marks_are_those_of_the_configuration(model, tokenizer):
    assert (model.config.bos_token_id, model.config.eos_token_id) == (BEGIN, END)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (BEGIN, END)


# A little below what the model's card says, which is measured on more needles.
@pytest.mark.parametrize(("length", "least"), [(256, 0.85), (512, 0.9), (1024, 0.9)])
def test_facts_are_found(model, length, least):
    assert needle_accuracy(model, length, range(40)) >= least


def test_a_context_is_repeated_when_asked(model):
    assert repeat_accuracy(model, 512, range(5)) >= 0.7


def test_generation_gives_the_answers_that_are_counted_as_found(model, tokenizer):
    found = []
    for seed in range(6):
        context, fact, _ = needle(seed, 256)
        prompt = context + b"\n" + fact.question()
        given = tokenizer(prompt.decode(), return_tensors="pt")
        size = len(fact.answer())
        made = model.generate(**given, max_new_tokens=size, do_sample=False)
        found.append(bool(says(model, prompt, fact.answer()).all()))
        assert (tokenizer.decode(made[0, -size:]).encode() == fact.answer()) == found[-1]
    assert any(found)


def test_no_held_out_file_is_trained_on():
    train_files, held_out = corpus.files("train"), corpus.files("heldout")
    assert not train_files.keys() & held_out.keys()
    assert held_out
    assert all(map(corpus.is_held_out, held_out))


@pytest.mark.parametrize("kind", tasks.MIXED | tasks.COPYING | tasks.FINDING)
@pytest.mark.parametrize("length", [256, 2048])
def test_a_row_is_the_same_for_the_same_seed(kind, length):
    assert kind(Random(7), length) == kind(Random(7), length)


def test_a_needle_has_the_length_asked_for_and_can_be_read():
    for seed in range(20):
        context, fact, depth = needle(seed, 512, distractors=3)
        assert len(context) == 512
        assert context.count(fact.stated()) == 1
        assert 0 <= depth < 1


def test_a_step_draws_the_same_batch_whenever_it_is_taken():
    first, again, other = train.batch(0, 3), train.batch(0, 3), train.batch(0, 4)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_the_rates_rise_and_fall_in_every_cycle():
    start = 0
    for end, cooldown in train.CYCLES.items():
        shares = [train.rate(step) for step in range(start, end)]
        level = shares[train.WARMUP : -cooldown]
        assert shares[0] == 1 / train.WARMUP
        assert level == [1.0] * len(level)
        assert shares[-1] == 1 / cooldown
        start = end
    assert start == train.STEPS


@pytest.mark.parametrize("shape", [(8, 32), (32, 8), (16, 16)])
def test_a_step_of_the_optimiser_is_about_orthogonal(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(matrix))
    assert (values > 0.3).all()
    assert (values < 1.3).all()
