"""Traces: sequences of calls on caches, with the whole state after each call.

`python -m spec_tests.vectors.traces` writes `traces.json`. A step is a call like that of a vector,
in which `{"step": 0}` stands for the result of an earlier step. Steps are judged in order: the
first wrong one is the mistake. The tolerance of a step holds the rounding of all steps before it.
"""

import json
from collections.abc import Callable
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


class Recorder:
    """The reference, which records its calls.

    A call through an attribute, such as `kv.hex_prefill(...)`, is a step.
    """

    def __init__(self) -> None:
        self.calls = list[tuple[str, Inputs]]()
        self.results = list[Any]()

    def __getattr__(self, function: str) -> Callable[..., Any]:
        """Return a function of the reference that records its calls."""

        def call(**inputs: Any) -> Any:
            self.calls.append((function, inputs))
            self.results.append(getattr(reference, function)(**inputs))
            return self.results[-1]

        return call

    def said(self, value: Any) -> Any:
        """Return an argument as JSON; the result of an earlier step is its number."""
        for at, result in enumerate(self.results):
            if result is value and isinstance(value, Tensor | tuple):
                return {"step": at}
        return written(value, exact=False)


class Text:
    """Queries, keys, values and scores, returned from left to right."""

    def __init__(self, tensors: dict[str, Tensor]):
        self.tensors, self.at = tensors, 0

    def next(self, count: int, *names: str) -> Inputs:
        """Return the next tokens: queries, keys and values, or the tensors of these names."""
        start, self.at = self.at, self.at + count
        return {
            name: self.tensors[name].narrow(-1 if name == "scores" else -2, start, count).clone()
            for name in names or ("queries", "keys", "values")
        }


CONFIG = reference.HexConfig(
    bits=4, density=0.0, heavy=0.25, recent=2, block=8, scales=torch.float32
)
"""Settings without an expander mask, which depends on a random stream."""


def hex_stream(kv: Any, text: Text, config: reference.HexConfig) -> Any:
    """A prompt, then tokens that fill blocks; each state is read and its bytes are counted."""
    cache = kv.hex_prefill(**text.next(11), config=config)
    kv.hex_read(cache=cache)
    for count in (4, 1, 9):
        cache = kv.hex_append(cache=cache, **text.next(count))
        kv.hex_read(cache=cache)
        kv.hex_bytes(cache=cache)
    return cache


def hex_append(kv: Any, text: Text) -> None:
    """Append mode: each block stays apart."""
    hex_stream(kv, text, CONFIG)


def hex_full(kv: Any, text: Text) -> None:
    """Full mode: a block is added to the whole, then all entries are compressed again."""
    cache = hex_stream(kv, text, CONFIG._replace(mode="full", period=2))
    cache = kv.hex_recompress(cache=cache)
    kv.hex_read(cache=cache)
    kv.hex_bytes(cache=cache)


def hex_carried(kv: Any, text: Text) -> None:
    """The recent window stays in the residual buffer."""
    hex_stream(kv, text, CONFIG._replace(carry_recent=True, outside_recent=True))


def hex_second_turn(kv: Any, text: Text) -> None:
    """An answer, then a question of many tokens in one call, then attention over all tokens."""
    cache = kv.hex_prefill(**text.next(16), config=CONFIG)
    cache = kv.hex_append(cache=cache, **text.next(3))
    cache = kv.hex_append(cache=cache, **text.next(14))
    kv.hex_read(cache=cache)
    kv.hex_attention(queries=text.next(1)["queries"], cache=cache)
    kv.hex_decode(cache=cache, **text.next(1))


def kivi(kv: Any, text: Text) -> None:
    """Keys and values leave the residual buffer at different times."""
    settings = dict(bits=4, group=4, residual=8, scales=torch.float32)
    cache = kv.kivi_prefill(**text.next(19, "keys", "values"), **settings)
    kv.kivi_read(cache=cache)
    for count in (4, 1, 7):
        cache = kv.kivi_append(cache=cache, **text.next(count, "keys", "values"))
        kv.kivi_read(cache=cache)
        kv.quantizer_bytes(cache=cache)


def gear(kv: Any, text: Text) -> None:
    """Blocks of decoded tokens, without the low-rank part, whose factors are not unique."""
    settings = dict(rank=0, decoded_rank=0, block=5, outliers=0.1, scales=torch.float32)
    cache = kv.gear_prefill(**text.next(17, "keys", "values"), **settings)
    kv.gear_read(cache=cache)
    for count in (3, 1, 1, 7):
        cache = kv.gear_append(cache=cache, **text.next(count, "keys", "values"))
        kv.gear_read(cache=cache)
    kv.quantizer_bytes(cache=cache)


def decoding(kv: Any, text: Text) -> None:
    """Compression while decoding; an eviction occurs in the middle of a chunk."""
    config = reference.DecodingConfig(target=6, interval=4, scope="head", sinks=1, recent=1)
    cache = kv.decoding_start(**text.next(5, "keys", "values", "scores"), config=config)
    for count in (2, 1, 6):
        cache = kv.decoding_append(cache=cache, **text.next(count, "keys", "values", "scores"))
        kv.decoding_read(cache=cache)
    kv.stored_bytes(object=cache)


def ragged(kv: Any, text: Text) -> None:
    """Heads keep different numbers of tokens; new tokens attend to the kept ones."""
    old = text.next(12, "keys", "values", "scores")
    old["scores"][0] /= 4
    kept = kv.retain(scores=old.pop("scores"), ratio=0.5, scope="layer")
    cache = kv.evict(**old, kept=kept)
    kv.stored_bytes(object=cache)
    kv.ragged_attention(cache=cache, **text.next(1))
    text.at -= 1  # the cache and the tokens since then
    kv.ragged_attention(cache=cache, **text.next(4))


def padded(kv: Any, text: Text) -> None:
    """Two rows, one with padding on its left: budgets count real tokens."""
    old = text.next(10, "keys", "values", "scores")
    valid = torch.ones(2, 10, dtype=torch.bool)
    valid[1, :3] = False
    scores = old.pop("scores")
    scored = reference.Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
    kept = kv.select(**old, scored=scored, ratio=0.5, scope="layer", valid=valid)
    cache = kv.evict(**old, kept=kept)
    kv.ragged_attention(cache=cache, **text.next(2))


class Trace(NamedTuple):
    """Steps on one text, and the mistakes that they detect."""

    run: Callable[[Any, Text], Any]
    hunts: str
    batch: tuple[int, ...] = ()


TRACES = {
    "hex-append": Trace(hex_append, "a token enters a block one step early or late"),
    "hex-full": Trace(hex_full, "the block that fills is quantised before it is joined"),
    "hex-carried": Trace(hex_carried, "the recent window is compressed with the block"),
    "hex-second-turn": Trace(hex_second_turn, "a long question is compressed as one block"),
    "kivi": Trace(kivi, "values leave the residual when keys do"),
    "gear": Trace(gear, "the residual is compressed at each step"),
    "decoding": Trace(decoding, "positions are counted anew after an eviction"),
    "ragged": Trace(ragged, "the number of a head's entries is taken for its offset"),
    "padded": Trace(padded, "padding counts towards the budget", (2,)),
}


def drawn(batch: tuple[int, ...]) -> dict[str, Tensor]:
    """Return the text of a trace: numbers of few digits, with which rounding changes no choice."""
    random = torch.Generator().manual_seed(0)
    shapes = {"keys": (2, 48, 4), "queries": (4, 48, 4), "scores": (2, 48), "values": (2, 48, 4)}
    made = {
        name: torch.randint(-2048, 2049, (*batch, *shape), generator=random) / 1024
        for name, shape in shapes.items()
    }
    return made | {"scores": made["scores"].abs()}


def as_json(name: str) -> Inputs:
    """Return a trace with the expected state after each step.

    Raises:
        Unequal: another rounding gives another choice.
    """
    trace = TRACES[name]

    def recorded(**tensors: Tensor) -> Recorder:
        kv = Recorder()
        trace.run(kv, Text(tensors))
        return kv

    tensors = drawn(trace.batch)
    plain = recorded(**tensors)
    exact, bounds = error_bounds(lambda **given: (*recorded(**given).results,), tensors)
    steps = []
    for (function, given), result, bound in zip(plain.calls, exact, bounds, strict=True):
        inputs = {key: plain.said(value) for key, value in given.items()}
        step = {"function": function, "inputs": inputs, "expected": written(result, exact=False)}
        tolerance = as_tolerance(result, bound)
        steps.append(step | ({} if tolerance is None else {"tolerance": tolerance}))
    functions = list(dict.fromkeys(function for function, _ in plain.calls))
    flags = dict.fromkeys(flag for name, given in plain.calls for flag in flags_of(name, given))
    return {
        "id": name,
        "spec": list(dict.fromkeys(spec for f in functions for spec in source_equations(f))),
        "functions": functions,
        "hunts": trace.hunts,
        "origin": "generated",
        "level": "values",
        "flags": [*flags],
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
