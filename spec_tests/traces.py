"""Traces: sequences of calls on caches, with the whole state after each call.

`python -m spec_tests.traces` writes `traces.json`. A step is a call like that of a vector, in which
`{"step": 0}` stands for the result of an earlier step. Steps are judged in order: the first wrong
one is the mistake. A program may hold its cache in a form of its own. Then it is judged by the
steps that read the cache, count its bytes or attend to it.
"""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import reference
from spec_tests.accuracy import Unequal, cast, error_magnitudes
from spec_tests.generate_vectors import rounded_up
from spec_tests.index import HERE, source_equations
from spec_tests.json_values import written
from spec_tests.vector_flags import readings_of

FILE = HERE / "traces.json"
HEADS, QUERY_HEADS, WIDTH = 2, 4, 8
MOST_SEEDS = 100
Arguments = dict[str, Any]


class Step:
    """The result of a step, which later steps take as an argument."""

    def __init__(self, place: int, result: Any):
        self.place, self.result = place, result


class Trace:
    """Calls of the reference, written down as they are made.

    Args:
        name: its id.
        hunts: the mistake that it finds.
        seed: of its tensors.
    """

    def __init__(self, name: str, hunts: str, seed: int):
        self.name, self.hunts, self.steps = name, hunts, list[Arguments]()
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, function: str, **inputs: Any) -> Step:
        """Make a call, and return its result for later steps."""
        spec: Callable[..., Any] = getattr(reference, function)
        given = {
            key: value.result if isinstance(value, Step) else value for key, value in inputs.items()
        }
        exact, magnitude = error_magnitudes(spec, given)
        self.steps.append(
            {
                "function": function,
                "inputs": {
                    key: {"step": value.place}
                    if isinstance(value, Step)
                    else written(value, exact=False)
                    for key, value in inputs.items()
                },
                "expected": written(cast(exact, torch.float32), exact=False),
                "magnitude": written(rounded_up(magnitude), exact=False),
            }
        )
        return Step(len(self.steps) - 1, spec(**given))

    def drawn(self, *shape: int) -> Tensor:
        """Return numbers of few digits."""
        return torch.randint(-512, 513, shape, generator=self.random) / 256

    def tokens(self, count: int, batch: tuple[int, ...] = ()) -> Arguments:
        """Return queries, keys and values of tokens."""
        return dict(
            queries=self.drawn(*batch, QUERY_HEADS, count, WIDTH) / 8,
            keys=self.drawn(*batch, HEADS, count, WIDTH),
            values=self.drawn(*batch, HEADS, count, WIDTH),
        )

    @property
    def text(self) -> Arguments:
        """The trace as JSON."""
        functions = list(dict.fromkeys(step["function"] for step in self.steps))
        cited = [one for name in functions for one in source_equations(name)]
        reading = [one for name in functions for one in readings_of(name)]
        return {
            "id": self.name,
            "spec": sorted(set(cited)),
            "hunts": self.hunts,
            "origin": "generated",
            "level": "values",
            "reading": sorted(set(reading)),
            "steps": self.steps,
        }


CONFIG = reference.HexConfig(bits=4, density=0.0, heavy=0.25, recent=2, block=8)
"""Without an expander mask, which depends on a random stream."""


def hex_stream(trace: Trace, config: reference.HexConfig) -> None:
    """A prompt, then tokens across the ends of blocks; each state is read and counted."""
    cache = trace("hex_prefill", **trace.tokens(11), config=config)
    trace("hex_read", cache=cache)
    for count in (1, 4, 1, 9):
        cache = trace("hex_append", cache=cache, **trace.tokens(count))
        trace("hex_read", cache=cache)
        trace("hex_bytes", cache=cache)


def hex_append(trace: Trace) -> None:
    """Blocks stand side by side."""
    hex_stream(trace, CONFIG)


def hex_full(trace: Trace) -> None:
    """All that is held is compressed again with each block."""
    hex_stream(trace, CONFIG._replace(mode="full"))


def hex_carried(trace: Trace) -> None:
    """The recent window stays in the residual buffer."""
    hex_stream(trace, CONFIG._replace(carry_recent=True, outside_recent=True))


def hex_second_turn(trace: Trace) -> None:
    """A question behind an answer: many tokens at once, then attention over all."""
    cache = trace("hex_prefill", **trace.tokens(16), config=CONFIG)
    cache = trace("hex_append", cache=cache, **trace.tokens(3))
    cache = trace("hex_append", cache=cache, **trace.tokens(14))
    trace("hex_read", cache=cache)
    trace("hex_decode", cache=cache, **trace.tokens(1))


def kivi_stream(trace: Trace) -> None:
    """Keys and values leave the residual at different times."""
    tokens = trace.tokens(19)
    cache = trace("kivi_prefill", keys=tokens["keys"], values=tokens["values"], group=4, residual=8)
    trace("kivi_read", cache=cache)
    for count in (1, 4, 1, 7):
        tokens = trace.tokens(count)
        cache = trace("kivi_append", cache=cache, keys=tokens["keys"], values=tokens["values"])
        trace("kivi_read", cache=cache)
        trace("quantizer_bytes", cache=cache)


def gear_stream(trace: Trace) -> None:
    """Blocks of decoded tokens, without the low-rank part, whose factors are not unique."""
    tokens = trace.tokens(17)
    settings = dict(rank=0, decoded_rank=0, block=5, outliers=0.1)
    cache = trace("gear_prefill", keys=tokens["keys"], values=tokens["values"], **settings)
    for count in (1, 3, 1, 7):
        tokens = trace.tokens(count)
        cache = trace("gear_append", cache=cache, keys=tokens["keys"], values=tokens["values"])
        trace("gear_read", cache=cache)


def decoding(trace: Trace) -> None:
    """Compression while decoding; an eviction falls into the middle of a chunk."""
    config = reference.DecodingConfig(target=6, interval=4, scope="head", sinks=1)
    tokens, scores = trace.tokens(5), trace.drawn(HEADS, 5).abs()
    cache = trace(
        "decoding_start",
        keys=tokens["keys"],
        values=tokens["values"],
        scores=scores,
        config=config,
    )
    for count in (2, 1, 6):
        tokens, scores = trace.tokens(count), trace.drawn(HEADS, count).abs()
        cache = trace(
            "decoding_append",
            cache=cache,
            keys=tokens["keys"],
            values=tokens["values"],
            scores=scores,
        )
        trace("decoding_read", cache=cache)


def ragged(trace: Trace) -> None:
    """Heads keep different numbers of tokens; new tokens attend to what each kept."""
    tokens, new = trace.tokens(12), trace.tokens(3)
    scores = trace.drawn(HEADS, 12).abs() / 2
    scores[0] /= 4
    kept = trace("retain", scores=scores, ratio=0.5, scope="layer")
    cache = trace("evict", keys=tokens["keys"], values=tokens["values"], kept=kept)
    trace("ragged_attention", cache=cache, **new)
    trace("stored_bytes", stored=cache)


def padded(trace: Trace) -> None:
    """Two rows, one with padding on its left: budgets count real tokens."""
    tokens = trace.tokens(10, (2,))
    valid = torch.ones(2, 10, dtype=torch.bool)
    valid[1, :3] = False
    scored = reference.Scored(
        trace.drawn(2, HEADS, 10).abs() / 2, torch.zeros(2, HEADS, 10, dtype=torch.bool)
    )
    vectors = dict(keys=tokens["keys"], values=tokens["values"])
    kept = trace("select", **vectors, scored=scored, ratio=0.5, valid=valid)
    trace("evict", **vectors, kept=kept)


TRACES: dict[str, tuple[Callable[[Trace], None], str]] = {
    "hex-append-across-block-ends": (hex_append, "a token enters a block one step early or late"),
    "hex-full-recompression": (hex_full, "the block that fills is quantised before it is joined"),
    "hex-window-carried-over": (hex_carried, "the recent window is compressed with the block"),
    "hex-second-turn": (hex_second_turn, "a long question is compressed as one block"),
    "kivi-stream": (kivi_stream, "values leave the residual when keys do"),
    "gear-stream": (gear_stream, "the residual is compressed at each step"),
    "decoding-eviction-in-a-chunk": (decoding, "positions are counted anew after an eviction"),
    "ragged-evict-and-attend": (ragged, "all heads are taken to keep as many"),
    "padded-rows": (padded, "padding counts towards the budget"),
}


def traces() -> list[Arguments]:
    """Return all traces as JSON."""
    found = []
    for name, (make, hunts) in TRACES.items():
        for seed in range(MOST_SEEDS):
            trace = Trace(name, hunts, seed)
            try:
                make(trace)
            except Unequal:  # two choices are right: other tensors
                continue
            found.append(trace.text)
            break
    return found


if __name__ == "__main__":
    FILE.write_text("[\n" + ",\n".join(map(json.dumps, traces())) + "\n]\n")
