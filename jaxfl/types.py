"""The public names of :mod:`jaxfl.core.types`, the records of which algorithms are composed."""

from jaxfl.core.types import *  # noqa: F403
from jaxfl.core.types import __all__ as __all__
