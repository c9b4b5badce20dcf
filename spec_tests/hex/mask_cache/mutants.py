"""Mutants of the store of masks."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/mask_cache")
mutant("""
test_what_a_caller_does_to_a_mask_stays_with_the_caller
  SharedMasks: the store returns its mask in memory, which callers can change
  - return _unpack(packed)
  + return self.__dict__.setdefault("masks", {}).setdefault(key, _unpack(packed))
test_masks_of_different_arguments_do_not_meet
  SeedlessStore: the seed is not part of the key
  - -seed{seed}{kind}
  + -seed{kind}
test_every_flipped_bit_has_the_mask_made_anew
  HastyStore: a file is accepted if the first byte of its digest is right
  - raw[DIGEST:]).digest() == raw[:DIGEST]
  + raw[DIGEST:]).digest()[:1] == raw[:1]
test_a_sealed_file_of_anything_but_such_a_mask_is_replaced
  ShapelessStore: a mask that is read has the shape that its file says
  - packed[:2].tolist() != [tokens, channels]
  + packed[0] != tokens
test_a_sealed_mask_without_degrees_or_certificate_is_replaced
  UncertifiedStore: a mask that is read has the right degrees, and need not be an expander
  - min(degrees) < 3 or self.certified(_unpack(packed))
  + True
test_stores_of_different_generators_share_no_file
  NamelessStore: the generator is not part of the key
  - ("" if own else _name(self.generate))
  + ""
test_what_killed_writers_left_is_swept_after_an_hour
  ZealousStore: all temporary files are removed, and one that cannot be removed raises an error
  - glob(f".*-seed*.{'[0-9a-f]' * 16}.tmp"):
  -             # somebody else was faster, or owns the file: a mask can be written all the same
  -             with suppress(OSError):
  + glob(".*.tmp"):
  +             if True:
""")
