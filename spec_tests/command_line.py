"""The options of `python -m spec_tests`, and what pytest gets of them."""

from pathlib import Path

TAKES_VALUE = {"--xfails", "--device", "--impl", "--command", "--hypothesis-profile", "--level"}
TAKES_VALUE |= {"--report-html", "--report-json", "--examples", "--paper", "--call-limit"}
TAKES_VALUE |= {"-k", "-m", "-n", "-p", "-c", "-W"}


def pytest_arguments(given: list[str]) -> list[str]:
    """Return pytest's arguments: a bare word becomes `--impl WORD`, others stay as they are."""
    out = [str(Path(__file__).parent), "-p", "no:cacheprovider", "--import-mode=importlib"]
    out += ["-p", "no:benchmark"]  # it would create a folder .benchmarks
    out += [] if any(word.startswith("-v") for word in given) else ["-q"]
    expects_value = False
    for word in given:
        if word.startswith("-") or expects_value:
            out.append(word)
        else:
            out += ["--impl", word]
        expects_value = word in TAKES_VALUE
    return out
