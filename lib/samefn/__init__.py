"""Same function, different weights: when do two settings of a network's weights compute the same function?

Networks are in :mod:`samefn.networks`.  Two wings answer the question, one for each part of the book:
:mod:`samefn.skip` (can a block absorb its skip connection?) and :mod:`samefn.equivariance` (which
weights have the same function, and what does that force on an equivariant network?).  The names below
are those that a reader needs first; each is imported when it is first used.

>>> import torch
>>> from samefn import MLP, Residual, absorb
>>> block = MLP(up=torch.tensor([[2.0], [3.0]]), down=torch.tensor([[1.0, -1.0]]))
>>> absorb(Residual(block)).absorbed
True
"""

import sys
from importlib.metadata import version

import lazy_loader

from .arguments import Enforcer

sys.meta_path.insert(0, Enforcer(__name__))
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("samefn")
