"""Costs that are counted, not timed: launches, instructions, communication volume and memory."""
