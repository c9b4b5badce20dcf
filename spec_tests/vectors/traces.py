"""Traces: sequences of calls on caches, with the whole state after each call.

`python -m spec_tests.vectors.traces` writes `traces.json`. A step is a call like that of a vector,
in which `{"step": 0}` stands for the result of an earlier step. Steps are judged in order: the
first wrong one is the mistake. The tolerance of a step holds the rounding of all steps before it.
"""

import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import reference
from optimized._atomic_files import write_atomically
from spec_tests.accuracy import error_bounds
from spec_tests.index import source_equations
from spec_tests.json_values import written
from spec_tests.vectors.flags import flags_of, readings_of
from spec_tests.vectors.generate import as_tolerance

FILE = Path(__file__).parent / "traces.json"
Inputs = dict[str, Any]


class Step(NamedTuple):
    """A call: a function, the names of its arguments, the tokens that it reads, and settings.

    `cache` and `object` are the latest cache, and `kept` is the result of the step before. Other
    arguments are a part of the text.
    """

    function: str
    arguments: str
    tokens: range = range(0)
    settings: Inputs = {}  # noqa: RUF012 read only


class Trace(NamedTuple):
    """Steps on one text, and the mistakes that they detect."""

    hunts: str
    steps: list[Step]
    batch: tuple[int, ...] = ()
    first_head: float = 1.0  # a factor on its scores


def stream(
    begin: str, arguments: str, counts: list[int], settings: Inputs, *reads: str
) -> list[Step]:
    """Return a prompt, then chunks of tokens; the `reads` follow each chunk."""
    kind = begin.partition("_")[0]
    prompt, *chunks = (range(*ends) for ends in pairwise(accumulate(counts, initial=0)))
    steps = [Step(begin, arguments, prompt, settings), Step(f"{kind}_read", "cache")]
    for tokens in chunks:
        steps.append(Step(f"{kind}_append", f"cache {arguments}", tokens))
        steps += [Step(read, "cache") for read in (f"{kind}_read", *reads)]
    return steps


TEXT, KV = "queries keys values", "keys values"
CONFIG = reference.HexConfig(
    bits=4, density=0.0, heavy=0.25, recent=2, block=8, scales=torch.float32
)
"""Settings without an expander mask, which depends on a random stream."""


def hex_stream(**changes: Any) -> list[Step]:
    """Return a prompt, then tokens that fill blocks; the bytes of each state are counted."""
    config = CONFIG._replace(**changes)
    return stream("hex_prefill", TEXT, [11, 4, 1, 9], dict(config=config), "hex_bytes")


KIVI = dict(bits=4, group=4, residual=8, scales=torch.float32)
GEAR = dict(rank=0, decoded_rank=0, block=5, outliers=0.1, scales=torch.float32)
"""Settings without the low-rank part, whose factors are not unique."""
DECODING = reference.DecodingConfig(target=6, interval=4, scope="head", sinks=1, recent=1)
"""Settings with an eviction in the middle of a chunk."""
VALID = torch.ones(2, 10, dtype=torch.bool).index_put(
    (torch.tensor(1), torch.arange(3)), torch.tensor(False)
)
"""Two rows, one with padding on its left."""
TRACES = {
    "hex-append": Trace("a token enters a block one step early or late", hex_stream()),
    "hex-full": Trace(
        "the block that fills is quantised before it is joined",
        [
            *hex_stream(mode="full", period=2),
            *(Step(f"hex_{name}", "cache") for name in ("recompress", "read", "bytes")),
        ],
    ),
    "hex-carried": Trace(
        "the recent window is compressed with the block",
        hex_stream(carry_recent=True, outside_recent=True),
    ),
    "hex-second-turn": Trace(
        "a long question is compressed as one block",
        [
            Step("hex_prefill", TEXT, range(16), dict(config=CONFIG)),
            Step("hex_append", f"cache {TEXT}", range(16, 19)),
            Step("hex_append", f"cache {TEXT}", range(19, 33)),
            Step("hex_read", "cache"),
            Step("hex_attention", "queries cache", range(33, 34)),
            Step("hex_decode", f"cache {TEXT}", range(34, 35)),
        ],
    ),
    "kivi": Trace(
        "values leave the residual when keys do",
        stream("kivi_prefill", KV, [19, 4, 1, 7], KIVI, "quantizer_bytes"),
    ),
    "gear": Trace(
        "the residual is compressed at each step",
        [*stream("gear_prefill", KV, [17, 3, 1, 1, 7], GEAR), Step("quantizer_bytes", "cache")],
    ),
    "decoding": Trace(
        "positions are counted anew after an eviction",
        [
            *stream("decoding_start", f"{KV} scores", [5, 2, 1, 6], dict(config=DECODING)),
            Step("stored_bytes", "object"),
        ],
    ),
    "ragged": Trace(
        "the number of a head's entries is taken for its offset",
        [
            Step("retain", "scores", range(12), dict(ratio=0.5, scope="layer")),
            Step("evict", f"{KV} kept", range(12)),
            Step("stored_bytes", "object"),
            Step("ragged_attention", f"cache {TEXT}", range(12, 13)),
            Step("ragged_attention", f"cache {TEXT}", range(12, 16)),
        ],
        first_head=0.25,
    ),
    "padded": Trace(
        "padding counts towards the budget",
        [
            Step("select", f"{KV} scored", range(10), dict(ratio=0.5, scope="layer", valid=VALID)),
            Step("evict", f"{KV} kept", range(10)),
            Step("ragged_attention", f"cache {TEXT}", range(10, 12)),
        ],
        batch=(2,),
    ),
}


def drawn(trace: Trace) -> dict[str, Tensor]:
    """Return the text of a trace: numbers of few digits, with which rounding changes no choice."""
    random = torch.Generator().manual_seed(0)
    shapes = {"keys": (2, 48, 4), "queries": (4, 48, 4), "scores": (2, 48), "values": (2, 48, 4)}
    text = {
        name: torch.randint(-2048, 2049, (*trace.batch, *shape), generator=random) / 1024
        for name, shape in shapes.items()
    }
    return text | {"scores": text["scores"].abs() * torch.tensor([[trace.first_head], [1.0]])}


def run(steps: list[Step], text: dict[str, Tensor]) -> tuple[list[Inputs], list[Inputs], list[Any]]:
    """Return the inputs of each step, the same as JSON, and the results."""
    calls, as_json, results = list[Inputs](), list[Inputs](), list[Any]()
    for function, arguments, tokens, settings in steps:
        inputs, earlier = {}, {}
        for name in arguments.split():
            if name in ("cache", "object", "kept"):
                caches = [n for n, x in enumerate(results) if type(x).__name__.endswith("Cache")]
                earlier[name] = {"step": len(results) - 1 if name == "kept" else caches[-1]}
                inputs[name] = results[earlier[name]["step"]]
            else:
                part = text["scores" if name == "scored" else name]
                axis = -1 if name.startswith("score") else -2
                part = part.narrow(axis, tokens.start, len(tokens)).clone()
                unprotected = torch.zeros_like(part, dtype=torch.bool)
                inputs[name] = reference.Scored(part, unprotected) if name == "scored" else part
        inputs |= settings
        calls.append(inputs)
        as_json.append({n: earlier.get(n) or written(x, exact=False) for n, x in inputs.items()})
        results.append(getattr(reference, function)(**inputs))
    return calls, as_json, results


def as_json(name: str) -> Inputs:
    """Return a trace with the expected state after each step.

    Raises:
        Unequal: another rounding gives another choice.
    """
    trace = TRACES[name]
    text = drawn(trace)
    calls, inputs, _ = run(trace.steps, text)
    results, bounds = error_bounds(lambda **text: (*run(trace.steps, text)[2],), text)
    steps = []
    for (function, *_), given, result, bound in zip(
        trace.steps, inputs, results, bounds, strict=True
    ):
        step = {"function": function, "inputs": given, "expected": written(result, exact=False)}
        tolerance = as_tolerance(result, bound)
        steps.append(step | ({} if tolerance is None else {"tolerance": tolerance}))
    functions = list(dict.fromkeys(step.function for step in trace.steps))
    flags = [flags_of(*call) for call in zip((s.function for s in trace.steps), calls, strict=True)]
    return {
        "id": name,
        "spec": list(dict.fromkeys(spec for f in functions for spec in source_equations(f))),
        "functions": functions,
        "hunts": trace.hunts,
        "origin": "generated",
        "level": "values",
        "flags": list(dict.fromkeys(flag for found in flags for flag in found)),
        "reading": list(dict.fromkeys(reading for f in functions for reading in readings_of(f))),
        "steps": steps,
    }


def main() -> None:
    """Write the file of traces, a line for each step."""
    lines = []
    for name in TRACES:
        said = as_json(name)
        steps = ",\n".join(json.dumps(step) for step in said.pop("steps"))
        lines.append(json.dumps(said)[:-1] + ', "steps": [\n' + steps + "\n]}")
    write_atomically(FILE, "[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
