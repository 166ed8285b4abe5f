"""pfl-research's simulated federated averaging: one local step, the update clipped and noised."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protocol import serve
from workloads import WORKLOADS, Workload, data

F = torch.nn.functional


class Net(torch.nn.Module):
    def __init__(self, w: Workload) -> None:
        super().__init__()
        self.logistic = w.kind == "logistic"
        self.images = w.kind == "images"
        if self.logistic:
            self.w = torch.nn.Parameter(torch.zeros(w.d))
        elif self.images:
            self.net = torch.nn.Sequential(
                torch.nn.Conv2d(1, 32, 3),
                torch.nn.ReLU(),
                torch.nn.Conv2d(32, 64, 3),
                torch.nn.ReLU(),
                torch.nn.MaxPool2d(2),
                torch.nn.Flatten(),
                torch.nn.Linear(9216, 128),
                torch.nn.ReLU(),
                torch.nn.Linear(128, 62),
            )
        else:
            first, last = torch.nn.Linear(w.features, 64), torch.nn.Linear(64, 10)
            self.net = torch.nn.Sequential(first, torch.nn.Sigmoid(), last)

    def loss(self, a: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        if self.images:
            a = a.movedim(-1, 1)
        if not self.logistic:
            return F.cross_entropy(self.net(a), y)
        z = a @ self.w
        return (F.softplus(z) - y * z).mean() + 0.2 * (self.w**2 / (1 + self.w**2)).sum()

    @torch.no_grad()
    def metrics(self, a: torch.Tensor, y: torch.Tensor) -> Any:
        return {"loss": Weighted(float(self.loss(a, y)) * len(y), len(y))}


def make(w: Workload, central: bool) -> Callable[[int], float]:
    torch.manual_seed(0)
    a, y = map(torch.from_numpy, data(w))
    y = y.long()
    net = Net(w)
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=w.eta),
    )

    def user(i: int) -> Dataset:
        index = torch.randint(w.m, (w.b,))
        return Dataset(raw_data=[a[i][index], y[i][index]], user_id=str(i))

    users = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(w.n))))
    noise = GaussianMechanism(w.G, w.sigma / w.G)
    steps = [CentrallyAppliedPrivacyMechanism(noise) if central else noise]
    backend = SimulatedBackend(users, users, postprocessors=steps)
    local = NNTrainHyperParams(
        local_num_epochs=None, local_num_steps=1, local_learning_rate=1.0, local_batch_size=None
    )

    def run(rounds: int) -> float:
        params = NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=w.n,
            val_cohort_size=0,
        )
        FederatedAveraging().run(
            params,
            backend,
            model,
            local,
            NNEvalHyperParams(local_batch_size=None),
            callbacks=[],
            send_metrics_to_platform=False,
        )
        return float(sum(p.sum() for p in net.parameters()))

    return run


def contenders(w: Workload) -> dict[str, Callable[[], Any]]:
    return {
        "pfl-research, noise per client": lambda: make(w, False),
        "pfl-research, central noise": lambda: make(w, True),
    }


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    found = {name: importlib.metadata.version(name) for name in ("pfl", "torch")}
    serve(contenders(WORKLOADS[sys.argv[1]]), found)
