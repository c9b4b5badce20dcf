"""The tokens that StreamingLLM keeps."""


def streaming_llm_kept(tokens: int, keep: int, sinks: int) -> set[int]:
    """Return the first tokens, and the last ones for the rest of the budget."""
    return {t for t in range(tokens) if t < sinks or t >= tokens - (keep - sinks)}
