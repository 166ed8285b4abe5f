"""Every bound, schedule and noise level of the four papers.  Host side: floats in and out.

====================================  =======================  ================================
paper                                 letters                  module
====================================  =======================  ================================
SoteriaFL, Theorems 1-3               :class:`Setting`         :mod:`jaxfl.theory_soteriafl`
... for any estimator                 :class:`Setting`         :mod:`jaxfl.theory_shifted`
Hu, Guo, Gong, Theorem 2, Lemma 6     :class:`LocalSetting`    :mod:`jaxfl.theory_local`
Gao, Lowy, Zhou, Wright, parameters   :class:`IsrlSetting`     :mod:`jaxfl.theory_isrl`
... Theorems 2.1, 2.4, 3.1, 3.2, 3.5  :class:`IsrlSetting`     :mod:`jaxfl.theory_isrl_rates`
Reshef, Levy, Theorems 5.1 to 6.2     :class:`AnytimeSetting`  :mod:`jaxfl.theory_anytime`
====================================  =======================  ================================

Tables 1 and 2 of SoteriaFL are in :mod:`jaxfl.theory_tables`, what its comparators' papers print in
:mod:`jaxfl.theory_recursive`, and bounds beside measured curves in :mod:`jaxfl.bounds`.  Numbers may
be NumPy arrays; they broadcast.
"""

from __future__ import annotations

from jaxfl.theory_anytime import (
    AnytimeSetting,
    anytime_bound,
    anytime_rdp,
    anytime_regret,
    anytime_rho,
    anytime_sigma,
    anytime_step,
    minibatch_step,
)
from jaxfl.theory_isrl import (
    IsrlSetting,
)
from jaxfl.theory_isrl_rates import (
    Complexity,
    convolution_gradients,
    convolution_rounds,
    excess_risk,
    matched_gradients,
    nesterov_rounds,
    rounds_lower_bound,
    smooth_gradients,
    smooth_rounds,
    subgradient_communication,
    subgradient_gradients,
    table1,
    table2,
)
from jaxfl.theory_local import (
    LocalSetting,
    local_bound,
    local_bound_convex,
    local_condition,
    local_step,
)
from jaxfl.theory_shifted import (
    least_beta,
    longest_step,
    saga_beta,
    sgd_beta,
    shifted_bound,
    shifted_rounds,
    shifted_sigma,
    shifted_step,
    shifted_utility,
    svrg_beta,
)
from jaxfl.theory_soteriafl import (
    CDP_CONSTANT,
    Setting,
    cdp_bound,
    cdp_rounds,
    cdp_step,
    cdp_utility,
    paper_sigma,
    saga_batch,
    saga_step,
    sgd_batch,
    sgd_rounds,
    sgd_step,
    sgd_utility,
    shift,
    svrg_batch,
    svrg_rounds,
    svrg_step,
    svrg_utility,
    tau,
    unit_sigma,
)

__all__ = [
    "CDP_CONSTANT",
    "AnytimeSetting",
    "Complexity",
    "IsrlSetting",
    "LocalSetting",
    "Setting",
    "anytime_bound",
    "anytime_rdp",
    "anytime_regret",
    "anytime_rho",
    "anytime_sigma",
    "anytime_step",
    "cdp_bound",
    "cdp_rounds",
    "cdp_step",
    "cdp_utility",
    "convolution_gradients",
    "convolution_rounds",
    "excess_risk",
    "least_beta",
    "local_bound",
    "local_bound_convex",
    "local_condition",
    "local_step",
    "longest_step",
    "matched_gradients",
    "minibatch_step",
    "nesterov_rounds",
    "paper_sigma",
    "rounds_lower_bound",
    "saga_batch",
    "saga_beta",
    "saga_step",
    "sgd_batch",
    "sgd_beta",
    "sgd_rounds",
    "sgd_step",
    "sgd_utility",
    "shift",
    "shifted_bound",
    "shifted_rounds",
    "shifted_sigma",
    "shifted_step",
    "shifted_utility",
    "smooth_gradients",
    "smooth_rounds",
    "subgradient_communication",
    "subgradient_gradients",
    "svrg_batch",
    "svrg_beta",
    "svrg_rounds",
    "svrg_step",
    "svrg_utility",
    "table1",
    "table2",
    "tau",
    "unit_sigma",
]
