"""The step between scoring and selecting."""

import reference
from optimized._composed import composed

refine = composed(reference.refine)
