"""Traces: sequences of calls on caches, with the whole state after each call.

`python -m spec_tests.vectors.traces` writes `traces.json`. A step is a call like that of a vector,
in which `{"step": 0}` stands for the result of an earlier step. Steps are judged in order: the
first wrong one is the mistake. The tolerance of a step holds the rounding of all steps before it.
"""

import json
from collections.abc import Callable, Iterator
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
HEADS, QUERY_HEADS, WIDTH, LONGEST = 2, 4, 4, 48
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

    def steps(self) -> Iterator[Inputs]:
        """Yield the function and the inputs of each step as JSON."""
        for function, inputs in self.calls:
            yield {"function": function, "inputs": {k: self.said(v) for k, v in inputs.items()}}

    def said(self, value: Any) -> Any:
        """Return an argument as JSON; the result of an earlier step is its number."""
        places = [at for at, result in enumerate(self.results) if result is value]
        numbered = places and isinstance(value, Tensor | tuple)
        return {"step": places[0]} if numbered else written(value, exact=False)


class Text:
    """Queries, keys, values and scores, returned from left to right."""

    def __init__(self, **tensors: Tensor):
        self.tensors, self.at = tensors, 0

    def next(self, count: int, *names: str) -> Inputs:
        """Return the next tokens: all tensors, or those of these names."""
        places = slice(self.at, self.at + count)
        self.at += count
        parts = {key: x.narrow(self.axis(key), places.start, count) for key, x in self.items}
        return {key: parts[key].contiguous() for key in names or ("queries", "keys", "values")}

    @property
    def items(self) -> list[tuple[str, Tensor]]:
        """The tensors by name."""
        return [*self.tensors.items()]

    def axis(self, key: str) -> int:
        """Return the index of the token axis of a tensor."""
        return -1 if key == "scores" else -2


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


def kivi_stream(kv: Any, text: Text) -> None:
    """Keys and values leave the residual buffer at different times."""
    settings = dict(bits=4, group=4, residual=8, scales=torch.float32)
    cache = kv.kivi_prefill(**text.next(19, "keys", "values"), **settings)
    kv.kivi_read(cache=cache)
    for count in (4, 1, 7):
        cache = kv.kivi_append(cache=cache, **text.next(count, "keys", "values"))
        kv.kivi_read(cache=cache)
        kv.quantizer_bytes(cache=cache)


def gear_stream(kv: Any, text: Text) -> None:
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

    name: str
    run: Callable[[Any, Text], Any]
    hunts: str
    seed: int  # with it no rounding gives another choice
    batch: tuple[int, ...] = ()

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The text, with numbers of few digits."""
        random = torch.Generator().manual_seed(self.seed)
        axes = {"queries": (QUERY_HEADS, LONGEST, WIDTH), "scores": (HEADS, LONGEST)}
        axes |= {"keys": (HEADS, LONGEST, WIDTH), "values": (HEADS, LONGEST, WIDTH)}
        drawn = {
            key: torch.randint(-2048, 2049, (*self.batch, *axes[key]), generator=random) / 1024
            for key in sorted(axes)
        }
        return drawn | {"scores": drawn["scores"].abs()}


TRACES = (
    Trace("hex-append", hex_append, "a token enters a block one step early or late", 0),
    Trace("hex-full", hex_full, "the block that fills is quantised before it is joined", 0),
    Trace("hex-carried", hex_carried, "the recent window is compressed with the block", 0),
    Trace("hex-second-turn", hex_second_turn, "a long question is compressed as one block", 0),
    Trace("kivi", kivi_stream, "values leave the residual when keys do", 0),
    Trace("gear", gear_stream, "the residual is compressed at each step", 0),
    Trace("decoding", decoding, "positions are counted anew after an eviction", 0),
    Trace("ragged", ragged, "the number of a head's entries is taken for its offset", 0),
    Trace("padded", padded, "padding counts towards the budget", 0, (2,)),
)


def results(trace: Trace, inputs: dict[str, Tensor], kv: Recorder) -> tuple[Any, ...]:
    """Return the results of all steps on a text."""
    trace.run(kv, Text(**{key: tensor.clone() for key, tensor in inputs.items()}))
    return tuple(kv.results)


def as_json(trace: Trace) -> Inputs:
    """Return a trace with the expected state after each step.

    Raises:
        Unequal: another rounding gives another choice, so that the trace needs another seed.
    """
    plain, tensors = Recorder(), trace.tensors
    results(trace, tensors, plain)
    exact, bounds = error_bounds(lambda **given: results(trace, given, Recorder()), tensors)
    steps = []
    for step, result, bound in zip(plain.steps(), exact, bounds, strict=True):
        tolerance = as_tolerance(result, bound)
        said = {"expected": written(result, exact=False)}
        steps.append(step | said | ({} if tolerance is None else {"tolerance": tolerance}))
    functions = list(dict.fromkeys(function for function, _ in plain.calls))
    flags = dict.fromkeys(flag for name, given in plain.calls for flag in flags_of(name, given))
    return {
        "id": trace.name,
        "spec": list(dict.fromkeys(one for f in functions for one in source_equations(f))),
        "functions": functions,
        "hunts": trace.hunts,
        "origin": "generated",
        "level": "values",
        "flags": [*flags],
        "reading": list(dict.fromkeys(one for f in functions for one in readings_of(f))),
        "steps": steps,
    }


def main() -> None:
    """Write the file of traces, a line for each step."""
    lines = []
    for trace in TRACES:
        said = as_json(trace)
        steps = ",\n".join(json.dumps(step) for step in said.pop("steps"))
        lines.append(json.dumps(said)[:-1] + ', "steps": [\n' + steps + "\n]}")
    write_atomically(FILE, "[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
