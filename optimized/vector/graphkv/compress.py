"""GraphKV as a whole: the specification's text over fast leaves."""

import reference
from optimized._composed import composed

graphkv_select = composed(reference.graphkv_select)
graphkv_compress = composed(reference.graphkv_compress)
