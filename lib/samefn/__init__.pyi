# What `samefn` itself offers; __init__.py reads the names from here and imports them when they are used.
from .equivariance.alignment import align as align
from .equivariance.layerwise import equivariance_error as equivariance_error
from .equivariance.layerwise import latent_actions as latent_actions
from .equivariance.redundancy import reduce as reduce
from .networks import MLP as MLP
from .networks import DeepMLP as DeepMLP
from .networks import GatedMLP as GatedMLP
from .networks import Residual as Residual
from .networks import Stack as Stack
from .skip.absorption import absorb as absorb
from .skip.criterion import trace_test as trace_test
from .skip.width import minimal_width as minimal_width

__version__: str
