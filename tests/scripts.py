"""Programs beside the package, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def load(place: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(place.replace("/", "_"), ROOT / f"{place}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
