"""Draw what every method keeps of one prompt: `python docs/one_prompt.py [--measure]`.

With `--measure` the shipped model of words reads the prompt with which `python -m optimized`
begins, and docs/one_prompt.json is written: for each system and token, the share of the heads that
keep the token, the bytes, and the answer. The picture docs/one_prompt.svg is drawn from that file.
Both are committed.
"""

import json
import sys
from typing import Any

import matplotlib.pyplot as plt
from drawing import DOCS, INK, STRONG, WEAK, svg_of
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from optimized._atomic_files import write_atomically

FIGURES, PICTURE = DOCS / "one_prompt.json", DOCS / "one_prompt.svg"
NAMES = {
    "full": "full cache",
    "kvzip": "KVzip",
    "kvzip+hubkv": "KVzip + HubKV",
    "fastkvzip": "FastKVzip",
    "fastkvzip+hubkv": "FastKVzip + HubKV",
    "snapkv": "SnapKV",
    "snapkv+graphkv": "SnapKV + GraphKV",
    "cake": "CAKE",
    "cake+graphkv": "CAKE + GraphKV",
    "pyramidkv": "PyramidKV",
    "h2o": "H2O",
    "knorm": "KNorm",
    "expected_attention": "ExpectedAttention",
    "streaming_llm": "StreamingLLM",
    "random": "random choice",
    "hex-4": "HEX-4",
    "hex-3": "HEX-3",
    "kcvt-3": "KCVT-3",
    "kivi-4": "KIVI-4",
    "gear": "GEAR",
}
"""The systems, by the names of the command, with their names in prose."""
AROUND = 5
"""Tokens shown with their words on each side of the fact."""
MOST = 0.3
"""Share of the heads from which on a token has the full colour."""


def measured() -> dict[str, Any]:
    """Return what each system keeps, stores and answers."""
    import torch

    import optimized
    from optimized.models.fastkvzip_gates import load_gates
    from optimized.models.layer import count_full_attention_layers
    from optimized.models.load import load
    from optimized.study import first_answer
    from optimized.study.compared_systems import systems_named
    from optimized.study.documents import Maker
    from optimized.study.evaluate import Batch
    from optimized.study.forms import request
    from optimized.study.measurements import MeasurementSettings, Row, trials
    from optimized.study.stage_clock import Clock
    from optimized.tiny import WORDS

    model, tokenizer = load(str(WORDS))
    gates = load_gates(WORDS, count_full_attention_layers(model.config), model.device)
    settings = MeasurementSettings("remedied", 0, optimized, None, gates, request(tokenizer))
    maker = Maker(first_answer.default_text(), tokenizer)
    read = first_answer.document(maker, first_answer.TOKENS)
    line = f"{first_answer.WORDS.statements[0]}\n"
    fact = maker.ids(line)
    first = next(
        at for at in range(len(read.context)) if read.context[at : at + len(fact)] == [*fact]
    )
    rows = [Row(trial) for trial in trials(systems_named(list(NAMES)), [first_answer.SHARE])]
    found = []
    with torch.inference_mode():
        batch = Batch(model, [read], [row.trial for row in rows], settings, tokenizer)
        for row in rows:
            system, kept = row.trial.system, None
            if system.evicts:
                mask = batch.kept(row.trial, optimized, Clock(batch.device))
                kept = mask.double().flatten(0, -2).mean(0)
                kept = [round(share, 3) for share in kept.tolist()]
            with batch.cache.undone():
                batch.compress(row)
                asked = read.questions[0].asked
                text = batch.judge.greedy(asked, first_answer.ended, first_answer.LONGEST)
            one = {"system": system.name, "bytes": row.nbytes, "answer": text, "kept": kept}
            found.append(one)
    return {
        "model": "words",
        "text": first_answer.FILE,
        "removed": first_answer.SHARE,
        "tokens": len(read.context),
        "line": line,
        "value": first_answer.WORDS.answer.strip(),
        "fact": [first, first + len(fact)],
        "words": [tokenizer.decode([token]) for token in read.context],
        "rows": found,
    }


def drawing() -> str:
    """Return the picture as SVG."""
    found = json.loads(FIGURES.read_text())
    rows = found["rows"]
    canvas, (whole, near, said) = plt.subplots(
        1,
        3,
        figsize=(11, 0.3 * len(rows) + 1.5),
        layout="constrained",
        width_ratios=(3.4, 2.4, 2.4),
    )
    first, last = found["fact"]
    strips(whole, rows, 0, found["tokens"])
    whole.set_yticks(range(len(rows)), [NAMES[row["system"]] for row in rows])
    whole.set(xlabel="token of the prompt", title="the whole prompt, the fact between the lines")
    for at in (first - 0.5, last - 0.5):
        whole.axvline(at, color=INK, linewidth=0.8)
    start, end = first - AROUND, last + AROUND
    strips(near, rows, start, end)
    near.set_yticks([])
    words = [word.replace("\n", "↵").strip(" ") or "␣" for word in found["words"][start:end]]
    near.set_xticks(range(start, end), words, rotation=90)
    for at, label in enumerate(near.get_xticklabels(), start):
        label.set_weight("bold" if first <= at < last else "normal")
    near.set_title("the fact (bold), and what is around it")
    said.set(xlim=(0, 1), ylim=whole.get_ylim())
    said.set_axis_off()
    table = {}
    for down, row in enumerate(rows):
        share = f"{100 * row['bytes'] / rows[0]['bytes']:.0f} %"
        colour = STRONG if answers_right(found, row) else WEAK
        table[down] = f"{row['bytes']:,}", share, row["answer"][:26] or "(nothing)", colour
    table[-1] = "bytes", "of all", "answer", INK
    for down, (size, share, answer, colour) in table.items():
        style = {"va": "center", "weight": "bold" if down < 0 else "normal"}
        said.text(0.26, down, size, ha="right", color=INK, **style)
        said.text(0.44, down, share, ha="right", color=INK, **style)
        said.text(0.5, down, answer, color=colour, **style)
    return svg_of(canvas)


def strips(axes: Axes, rows: list[dict[str, Any]], start: int, end: int) -> None:
    """Draw a strip for each system: what it keeps of the tokens between two places."""
    for down, row in enumerate(rows):
        codes = row["kept"] is None and row["system"] != "full"
        kept = [MOST] * (end - start) if row["kept"] is None else row["kept"][start:end]
        shades = LinearSegmentedColormap.from_list(
            "kept", ["#9aa3ab22", "#4a7fd4" if codes else STRONG]
        )
        extent = (start - 0.5, end - 0.5, down + 0.38, down - 0.38)
        axes.imshow(
            [kept], shades, vmin=0, vmax=MOST, extent=extent, aspect="auto", interpolation="none"
        )
    axes.set(xlim=(start - 0.5, end - 0.5), ylim=(len(rows) - 0.5, -0.6))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def answers_right(found: dict[str, Any], row: dict[str, Any]) -> bool:
    """Return whether a system gives the value of the fact."""
    return found["value"] in row["answer"]


if __name__ == "__main__":
    if "--measure" in sys.argv[1:]:
        write_atomically(FIGURES, json.dumps(measured(), ensure_ascii=False) + "\n")
    write_atomically(PICTURE, drawing())
