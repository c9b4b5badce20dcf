"""Mutants of a step of decoding with a HEX cache."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/decode_step")
mutant("""
test_a_decoded_token_reads_the_cache_before_it_and_itself
  blind_to_itself: a decoded token attends to earlier tokens only, not to itself
  - hex_attention(part[0], extended).output
  + hex_attention(part[0], cache, causal=False).output
test_decoding_stores_what_appending_stores
  decoded_twice: decoded tokens are stored twice
  - cache, start = hex_append(cache, *part), stop
  + cache, start = hex_append(hex_append(cache, *part), *part), stop
""")
