"""`PreTrainedModel` for annotations only, since its module imports most of `transformers`."""

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel as PreTrainedModel
else:
    PreTrainedModel = nn.Module
