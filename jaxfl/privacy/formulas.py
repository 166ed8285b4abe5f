"""The papers' own noise formulas, with their constants and the conditions they are stated under.

Each returns a :class:`Claim`: the noise that the paper says is enough for (eps, delta), or the eps
that it says a given noise buys.  A claim is what a paper states, not what holds: for that see
:mod:`jaxfl.privacy.accountants`.  Give either ``eps`` or ``sigma``; sigma is the standard deviation
added to the released mean.
"""

from jaxfl.privacy.claims import Claim, Condition
from jaxfl.privacy.formulas_federated import (
    dp_sgd_baseline,
    gao,
    hu,
    lowy_spider,
    lowy_svrg,
    mu2,
    one_pass,
)
from jaxfl.privacy.formulas_gradient import compressed_gd, dp_srm, q_dpsgd, rrpsgd, sdm

__all__ = [
    "Claim",
    "Condition",
    "compressed_gd",
    "dp_sgd_baseline",
    "dp_srm",
    "gao",
    "hu",
    "lowy_spider",
    "lowy_svrg",
    "mu2",
    "one_pass",
    "q_dpsgd",
    "rrpsgd",
    "sdm",
]
