"""What a user would pick instead, each in an environment of its own.

    python benchmarks/peers.py install [NAME ...]    # all, if none is named
    python benchmarks/peers.py list

Environments lie in the folder of JAXFL_PEERS, else in ~/.cache/jaxfl-peers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["PEERS", "Peer", "interpreter"]

HERE = Path(__file__).resolve().parent


class Peer(NamedTuple):
    script: str
    workloads: tuple[str, ...]
    steps: tuple[str, ...] = ()  # of `pip install`, one by one; none: runs beside jaxfl
    python: str = ""  # the version it asks for; "": any
    alone: bool = False  # its idle processes slow all others: it comes last, beside one of ours

    def enters(self, workload: str) -> bool:
        if not self.workloads:  # in a study of its own
            return False
        if workload.startswith("tiny"):
            return not workload.endswith("crowd") or "W5" in self.workloads
        return workload.startswith(self.workloads)


SMALL = ("W1", "W2", "W3")
DEEP = (*SMALL, "W6")
PEERS = {
    "numpy": Peer("numpy_loop.py", (*SMALL, "W4", "W5")),
    "naive_jax": Peer("naive_jax.py", (*SMALL, "W4")),
    "torch": Peer("torch_loop.py", (*SMALL, "W4"), ("torch==2.13.0 numpy",), "3.11"),
    "jax_privacy": Peer(
        "jax_privacy_loop.py",
        SMALL,
        ("jax_privacy==2.0.0 jax==0.10.2 jaxlib==0.10.2 optax==0.2.8",),
        "3.11",
    ),
    "pfl": Peer("pfl_sim.py", DEEP, ("torch==2.13.0", "pfl==0.6.0"), "3.11"),
    "fedjax": Peer(
        "fedjax_sim.py",
        DEEP,
        ("fedjax==0.0.17 jax==0.5.3 jaxlib==0.5.3 dm-haiku==0.0.17",),
        "3.10",  # newer JAX breaks it, and newer Pythons have no older JAX
    ),
    "opacus": Peer("clipping.py", (), ("torch==2.13.0 opacus==1.6.0",), "3.11"),
    "flower": Peer("flower_sim.py", SMALL, ("flwr==1.41.0 ray==2.55.0",), "3.11", alone=True),
}


def folder() -> Path:
    return Path(os.environ.get("JAXFL_PEERS") or Path.home() / ".cache" / "jaxfl-peers")


def interpreter(name: str, environments: Path | None = None) -> str | None:
    """That of the peer's environment; None where it is not installed."""
    if not PEERS[name].steps:
        return sys.executable
    found = (environments or folder()) / name / "bin" / "python"
    return str(found) if found.exists() else None


def find(version: str) -> str | None:
    """A Python of this version that starts: a version manager's shim may be there and not do so."""
    root = Path.home() / ".pyenv" / "versions"
    others = sorted(map(str, root.glob(f"{version}.*/bin/python")), reverse=True)
    for candidate in [shutil.which(f"python{version}"), *others, sys.executable]:
        if candidate is None:
            continue
        words = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
        told = subprocess.run([candidate, "-c", words], capture_output=True, text=True)
        if told.stdout.strip() == version:
            return candidate
    return None


def install(name: str, environments: Path) -> str:
    """What came of it, in words."""
    peer = PEERS[name]
    if not peer.steps:
        return "needs nothing of its own"
    python = find(peer.python)
    if python is None:
        return f"skipped: needs Python {peer.python}"
    home = environments / name
    commands = [[python, "-m", "venv", "--clear", str(home)]]
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--quiet"]
    commands += [[*pip, *step.split()] for step in peer.steps]
    for command in commands:
        if subprocess.run(command).returncode:
            shutil.rmtree(home, ignore_errors=True)
            return f"skipped: `{' '.join(command[1:4])} ...` failed"
    return "installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["install", "list"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--environments", type=Path, default=folder())
    args = parser.parse_args()
    if unknown := set(args.names) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    for name in args.names or PEERS:
        if args.what == "install":
            print(f"{name}: {install(name, args.environments)}", flush=True)
        else:
            print(f"{name}: {'there' if interpreter(name, args.environments) else 'not installed'}")


if __name__ == "__main__":
    main()
