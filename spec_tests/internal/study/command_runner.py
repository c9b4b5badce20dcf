"""A byte-level model of random weights in a folder, and the command run on it."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from transformers import AutoConfig

from optimized.__main__ import main
from optimized.study import record
from optimized.tiny.corpus_tokenizer import TokenizedCorpus
from spec_tests.internal.models.random_model import with_random_weights

TEXT = "".join(
    f"Line {n} says that {n * n} is the square of {n}, and no more.\n" for n in range(99)
)
SMALL = ("--context", "128", "--documents", "3", "--needles", "1", "--continuation", "16")
TOKENIZER = Path(__file__).parent / "byte_tokenizer"
FEW = (*SMALL, "--no-pictures", "--no-answer")


def save_random_model(folder: Path, kind: str = "llama", **settings: Any) -> Path:
    """Write a model whose layers cache 128 channels, the fewest for which HEX has a mask.

    Args:
        folder: where it goes.
        kind: the type of the model.
        settings: its settings.
    """
    on = TokenizedCorpus(TOKENIZER)
    usual = dict(
        vocab_size=len(on.tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        bos_token_id=on.begin,
        eos_token_id=on.end,
        pad_token_id=on.end,
    )
    config = AutoConfig.for_model(kind, **usual | settings)
    with_random_weights(config).save_pretrained(folder)
    on.tokenizer.save_pretrained(folder)
    (folder / "text.txt").write_text(TEXT)
    return folder


class CommandRunner:
    """The command, run in its own folder."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder, self.count = model, folder, 0

    def counting_needles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Compare needles although a model with random weights finds none."""
        monkeypatch.setattr(record, "LEAST", 0)

    def arguments(self, *options: str) -> list[str]:
        """Return the arguments of a small run; later options override earlier ones."""
        text = str(self.model / "text.txt")
        return ["--model", str(self.model), "--text", text, *FEW, "--quiet", *options]

    def figures(self, *options: str) -> dict:
        """Run the command into a new folder, and return the figures."""
        self.count += 1
        self.out = self.folder / f"report {self.count}"
        main(self.arguments("--out", str(self.out), *options))
        return json.loads((self.out / "figures.json").read_text())

    def refused(self, capsys: pytest.CaptureFixture, *options: str) -> str:
        """Run a refused command, and return its error line."""
        before = sorted(self.folder.iterdir())
        with pytest.raises(SystemExit) as ended:
            main(self.arguments("--out", str(self.folder / "refused"), *options))
        assert ended.value.code == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert sorted(self.folder.iterdir()) == before
        return said.err
