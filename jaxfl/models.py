"""Models with their losses: ``jaxfl.Problem(model, data)`` takes one of these.

>>> import jaxfl
>>> jaxfl.models.softmax_regression(features=64, classes=10).dim
650
"""

from jaxfl.problems.models import (
    absolute,
    ball,
    box,
    by_layer,
    char_lstm,
    cnn,
    custom,
    flax_model,
    hinge,
    l2,
    least_squares,
    logistic,
    mlp,
    nonconvex,
    resnet_gn,
    softmax_regression,
)

__all__ = [
    "absolute",
    "ball",
    "box",
    "by_layer",
    "char_lstm",
    "cnn",
    "custom",
    "flax_model",
    "hinge",
    "l2",
    "least_squares",
    "logistic",
    "mlp",
    "nonconvex",
    "resnet_gn",
    "softmax_regression",
]
