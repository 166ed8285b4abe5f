"""Names of metrics and of methods in tables and pictures."""

__all__ = ["NAMES", "WORDS"]

WORDS = {
    "loss": "training loss",
    "grad_norm_sq": "squared gradient norm",
    "test_accuracy": "test accuracy",
}
NAMES = {
    "private_local_sgd": "private local SGD, secure aggregation",
    "local_dp_sgd": "DP-SGD",
    "secure_sum": "with secure aggregation",
    "plain_sum": "without",
}
