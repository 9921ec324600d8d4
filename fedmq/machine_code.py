"""How does a computation get the processor's own instructions? LLVM translates them on first use.

LLVM comes by llvmlite, which the extra ``vectors`` installs. Without it, or on a processor without
the instructions, callers compute by other means.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["address", "features", "translated"]

_TRANSLATING = Lock()
_ENGINES: list[object] = []
"""The code lives as long as its engine."""


@lru_cache(maxsize=1)
def features() -> Mapping[str, bool]:
    """What this processor can, by LLVM's names; nothing if llvmlite is not installed."""
    if find_spec("llvmlite") is None:
        return {}
    from llvmlite import binding

    return dict(binding.get_host_cpu_features())


def address(array: NDArray[Any]) -> int:
    """Where the numbers of ``array`` begin, for a function that was translated."""
    return int(array.ctypes.data)


def translated(module: str, *names: str, as_vectors: bool = False) -> list[int]:
    """The addresses of the functions of ``names`` in a module in LLVM's language.

    ``as_vectors``: LLVM turns loops into instructions that compute several steps at once.
    """
    from llvmlite import binding

    with _TRANSLATING:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(),
            features=binding.get_host_cpu_features().flatten(),
            opt=3,
        )
        parsed = binding.parse_assembly(module)
        parsed.verify()
        if as_vectors:
            options = binding.create_pipeline_tuning_options(speed_level=3)
            options.loop_vectorization, options.loop_unrolling = True, False
            passes = binding.create_pass_builder(machine, options)
            passes.getModulePassManager().run(parsed, passes)
        engine = binding.create_mcjit_compiler(parsed, machine)
        engine.finalize_object()
        _ENGINES.append(engine)
        return [int(engine.get_function_address(name)) for name in names]
