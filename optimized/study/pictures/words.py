"""Words of captions."""


def verdict(agrees: bool, partly: bool = False) -> str:
    """Say whether a model shows what a paper does."""
    if agrees:
        return "this model agrees"
    return "this model agrees in direction only" if partly else "this model does not"


def share(value: float) -> str:
    """Write a share in percent."""
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"
