"""The report: one page that needs nothing but itself."""

from typing import Any


def page(figures: dict[str, Any]) -> str:
    """Return the page."""
    return f"<!doctype html><title>{figures['schema']}</title>"
