"""Within `compressing` every `generate` compresses its prompt; afterwards the model is restored."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import generate, models, new_model, transformers
from spec_tests.internal.models.test_images import attached_image_model, prompt

IDS, MASK = small.prompts()
SYSTEMS = {
    "snapkv": dict(ratio=0.5),
    "kvzip+hubkv": dict(ratio=0.5),
    "gear": {},
    "h2o": dict(keep=9, interval=4),
}
every_system = pytest.mark.parametrize("system", SYSTEMS)


@every_system
def test_generate_gives_what_the_two_lines_give(system):
    model, how = new_model("llama"), SYSTEMS[system]
    with models.compressing(model, system, **how) as same:
        assert same is model
        for _ in range(2):
            cache = models.compressed(small.attached_model("llama"), system, IDS, MASK, **how)
            expected = generate(small.attached_model("llama"), IDS, MASK, cache)
            assert torch.equal(generate(model, IDS, MASK), expected)


def test_the_model_is_afterwards_as_it_was():
    model, other = new_model("llama"), new_model("llama")
    expected = generate(model, IDS, MASK)
    before = set(vars(model)), model.config._attn_implementation
    with models.compressing(model, "snapkv", keep=4):
        assert not torch.equal(generate(model, IDS, MASK), expected)
        assert torch.equal(generate(other, IDS, MASK), expected)
    assert (set(vars(model)), model.config._attn_implementation) == before
    assert torch.equal(generate(model, IDS, MASK), expected)
    models.attach(model)
    with models.compressing(model, "snapkv", keep=4):
        pass
    models.prefill(model, IDS, MASK)  # the model is still attached


def test_what_would_not_be_compressed_is_refused():
    model = new_model("llama")
    with models.compressing(model, "snapkv", keep=4):
        with pytest.raises(TypeError, match="input_ids must be given"):
            model.generate(inputs_embeds=torch.zeros(1, 4, 32))
        with pytest.raises(ValueError, match="use_cache must be True within `compressing`"):
            generate(model, IDS, MASK, use_cache=False)
        cache = models.compressed(model, "full", IDS, MASK)  # a filled cache is kept
        generate(model, IDS, MASK, cache)
        assert cache.get_seq_length() == small.TOKENS + 7
        with pytest.raises(ValueError, match=r"within `compressing`.*an empty DynamicCache"):
            generate(model, IDS, MASK, transformers.DynamicCache())
        for call in (
            lambda: model(inputs_embeds=torch.zeros(1, 5, 32)),
            lambda: model(IDS, past_key_values=transformers.DynamicCache()),
            lambda: model.model(IDS),
        ):
            with pytest.raises(ValueError, match=r"through `generate` within `compressing`.*token"):
                call()
    assert model(IDS).logits.shape[:2] == model.model(IDS)[0].shape[:2] == IDS.shape


def test_a_generation_outlives_the_context():
    model, steps, ended = new_model("llama"), threading.Event(), threading.Event()

    def wait(ids, *_, **__):
        steps.set()
        ended.wait(20)
        return torch.zeros(len(ids), dtype=torch.bool)

    with ThreadPoolExecutor(1) as pool:
        with models.compressing(model, "snapkv", keep=9):
            expected = generate(model, IDS, MASK)
            answer = pool.submit(generate, model, IDS, MASK, stopping_criteria=[wait])
            assert steps.wait(20)
        ended.set()
        assert torch.equal(answer.result(), expected)


def test_padding_is_found_where_no_mask_is_given():
    model, ids = new_model("llama"), IDS.masked_fill(MASK == 0, 0)
    model.generation_config.pad_token_id = 0
    how = dict(max_new_tokens=4, do_sample=False)
    with models.compressing(model, "streaming_llm", keep=9):
        expected = model.generate(ids, attention_mask=MASK, **how)
        assert torch.equal(model.generate(input_ids=ids, **how), expected)


def test_a_pipeline_compresses():
    model, words = new_model("llama"), small.word_tokenizer()
    text = " ".join(f"w{n}" for n in IDS[0].tolist())
    cache = models.compressed(small.attached_model("llama"), "snapkv", IDS[:1], keep=9)
    expected = generate(small.attached_model("llama"), IDS[:1], torch.ones_like(IDS[:1]), cache)[0]
    pipe = transformers.pipeline("text-generation", model, tokenizer=words)
    how = dict(max_new_tokens=8, min_new_tokens=8, do_sample=False, return_full_text=False)
    with models.compressing(model, "snapkv", keep=9):
        answer = pipe(text, **how)[0]["generated_text"]
    assert words(answer)["input_ids"] == expected[small.TOKENS :].tolist()
    assert pipe(text, **how)[0]["generated_text"] != answer


def test_images_are_read():
    ids, mask, looked = prompt("llava", True, False)
    cache = models.compressed(attached_image_model("llava"), "snapkv", ids, mask, keep=20, **looked)
    expected = generate(attached_image_model("llava"), ids, mask, cache, **looked)
    with models.compressing(attached_image_model("llava"), "snapkv", keep=20):
        assert torch.equal(generate(attached_image_model("llava"), ids, mask, **looked), expected)


def test_threads_share_one_scorer():
    model = models.attach(new_model("llama"))
    scorer = models.scorer("snapkv", model, window=8)
    texts = [IDS[:1, shift:] for shift in range(3)]
    masks = [torch.ones_like(text) for text in texts]
    with models.compressing(model, scorer, ratio=0.7):
        expected = [generate(model, text, mask) for text, mask in zip(texts, masks, strict=True)]
        with ThreadPoolExecutor(3) as pool:
            answers = [*pool.map(generate, [model] * 18, texts * 6, masks * 6)]
    assert all(map(torch.equal, answers, expected * 6))


def test_what_cannot_be_meant_is_refused():
    model = new_model("llama")
    with (
        pytest.raises(ValueError, match="model must be in one `compressing` at a time"),
        models.compressing(model, "snapkv", keep=4),
        models.compressing(model, "snapkv", keep=4),
    ):
        pass
    assert "generate" not in vars(model)
    with pytest.raises(TypeError, match="did you mean 'ratio'"):
        models.compressing(model, "snapkv", ratoi=1).__enter__()
