"""The shorter ways to machine code that XLA may have, for tests whose time is compilation."""

import functools

import jax

# Emitters without MLIR, and one piece of LLVM code where as many as there are cores would be made.
# JAX 0.12 has the second alone.
SHORTER = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}


@functools.cache
def known() -> dict[str, bool | int]:
    """Those of them that this version knows."""
    found: dict[str, bool | int] = {}
    for name, value in SHORTER.items():
        try:
            jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
        except jax.errors.JaxRuntimeError:
            continue
        found[name] = value
    return found


def flags() -> str:
    """The same as flags of a process."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in known().items())
