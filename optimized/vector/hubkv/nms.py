"""Non-maximum suppression, rebound to the vectorised hubs."""

import reference
from optimized._rebind import rebind
from optimized.vector.hubkv.discount import hub_mask

nms = rebind(reference.nms, hub_mask=hub_mask)
