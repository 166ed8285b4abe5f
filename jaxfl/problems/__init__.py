"""Problems to minimize: models, their gradients and clipping, metrics.

* :mod:`~jaxfl.problems.clipping` -- weighted sums of clipped per-example gradients
* :mod:`~jaxfl.problems.custom` -- models from a user's loss
* :mod:`~jaxfl.problems.facts` -- facts of a problem that are known before the first round
* :mod:`~jaxfl.problems.flax_layers` -- the inputs and the outputs of layers
  of flax modules
* :mod:`~jaxfl.problems.flax_models` -- flax modules, linen and nnx, as models
* :mod:`~jaxfl.problems.kernels` -- per-example gradients as factors: clipped sums without an
  array (b, d)
* :mod:`~jaxfl.problems.layers` -- per-example gradients of flax modules, layer by layer
* :mod:`~jaxfl.problems.metrics` -- exact loss, gradient and accuracy of a problem, in bounded
  memory
* :mod:`~jaxfl.problems.models` -- models: a loss per example over a flat vector, with an initial
  point and per-example gradients
* :mod:`~jaxfl.problems.outputs` -- losses of a model's output z and a label y, with their labels
  and curvature
* :mod:`~jaxfl.problems.parameters` -- parameters as flat vectors ``(d,)``, which users see as
  pytrees; and initial points
* :mod:`~jaxfl.problems.problem` -- problems: a model and the data of n clients, checked once
* :mod:`~jaxfl.problems.public` -- regularizers and constraint sets: the parts of an objective
  that depend on no data
"""
