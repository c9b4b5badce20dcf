"""Phrases of captions."""


def verdict(agrees: bool, partly: bool = False) -> str:
    """Return a phrase on whether a model agrees with a paper."""
    if agrees:
        return "this model agrees"
    return "this model agrees in direction only" if partly else "this model does not"


def share(value: float) -> str:
    """Return a share in percent."""
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"
