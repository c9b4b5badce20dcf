"""Test the store of masks with writers that are killed, and with writers that race.

Run `python -m spec_tests.hex.mask_cache.crashes MODULE DIRECTORY`: a process of its own, because it
forks. It prints what it did, and the number of wrong masks.
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import torch

from spec_tests.implementation import Implementation

WRITES, KILLS, WRITERS, ROUNDS = 100, 8, 8, 25
SIZES = (8, 16)


def make_seeded_mask(tokens, channels, _density, seed, *_kind):
    """Return a mask that is fast to make and depends on its seed only."""
    places = torch.arange(tokens * channels).reshape(tokens, channels)
    return (places * (2 * seed + 3) % 509) % 8 == 0


class Counted:
    """A generator that counts its calls, or refuses them."""

    def __init__(self):
        self.calls, self.refuses = 0, False

    def __call__(self, *arguments):
        """Generate a mask and count the call."""
        if self.refuses:
            raise InterruptedError
        self.calls += 1
        return make_seeded_mask(*arguments)


def wrong(store, seed: int) -> bool:
    """Whether the store returns another mask than the right one."""
    return not torch.equal(store.mask(*SIZES, 0.125, seed), make_seeded_mask(*SIZES, 0.125, seed))


def kill_writers(impl, directory: Path) -> dict[str, int]:
    """Kill a process during its writes, many times; then read all masks."""
    random_time = random.Random(0)
    start = time.perf_counter()
    write_all(impl, directory / "rehearsal")
    whole = time.perf_counter() - start
    counts = dict(kills=0, left_behind=0, whole_files=0, wrong=0, warnings=0)
    for attempt in range(KILLS):
        place = directory / str(attempt)
        child = os.fork()
        if not child:
            write_all(impl, place)
            os._exit(0)
        time.sleep(whole * random_time.random())
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        counts["kills"] += os.WIFSIGNALED(status)
        counts["left_behind"] += len(list(place.glob(".*.tmp")))
        counts["whole_files"] += len(list(place.glob("*.csr")))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store = impl.MaskStore(place, 0, make_seeded_mask)
            counts["wrong"] += sum(wrong(store, seed) for seed in range(WRITES))
        counts["warnings"] += len(caught)
    return dict(writes=KILLS * WRITES, **counts)


def write_all(impl, directory: Path) -> None:
    """Write masks of many seeds."""
    store = impl.MaskStore(directory, 0, make_seeded_mask)
    for seed in range(WRITES):
        store.mask(*SIZES, 0.125, seed)


def race_writers(impl, directory: Path) -> dict[str, int]:
    """Let 8 processes read, damage, remove and rewrite one file at the same time."""
    children = []
    for writer in range(WRITERS):
        child = os.fork()
        if not child:
            os._exit(race(impl, directory, random.Random(writer)))
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    crashes = sum(code < 0 or code > ROUNDS for code in codes)
    return dict(writers=WRITERS, rounds=WRITERS * ROUNDS, wrong=sum(codes), crashes=crashes)


def race(impl, directory: Path, random_choice: random.Random) -> int:
    """Damage or remove the file, then request its mask; return the number of wrong masks."""
    warnings.simplefilter("ignore")
    store = impl.MaskStore(directory, 0, make_seeded_mask)
    count = 0
    for _ in range(ROUNDS):
        for file in directory.glob("*.csr"):
            kind = random_choice.randrange(3)
            try:
                if kind == 0:
                    file.unlink()
                elif kind == 1:
                    file.write_bytes(file.read_bytes()[: random_choice.randrange(300)])
            except FileNotFoundError:
                continue
        count += wrong(store, 7)
    return count


if __name__ == "__main__":
    impl, directory = Implementation(sys.argv[1]), Path(sys.argv[2])
    killed = kill_writers(impl, directory / "killed")
    raced = race_writers(impl, directory / "raced")
    print(json.dumps(dict(killed=killed, raced=raced)))
