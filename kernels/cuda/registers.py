"""The compiler's report on each kernel: registers, stack, spills. Needs NVRTC, not a GPU.

`python -m fastweights.kernels.cuda.registers` prints the table for every kernel, head size and
architecture.
"""

import re
from pathlib import Path
from typing import NamedTuple

from fastweights.kernels.cuda.arguments import HEAD_SIZES
from fastweights.kernels.cuda.compiler import KERNELS, compile_source, compiler_version

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
PATTERN = re.compile(
    r"entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


class Usage(NamedTuple):
    """Resources of one kernel."""

    registers: int
    stack_bytes: int
    spilled_bytes: int


def sources() -> list[Path]:
    """Return every CUDA source."""
    return sorted(KERNELS.rglob("cuda.cu"))


def usage(source: Path, head_size: int, architecture: str) -> dict[str, Usage]:
    """Return the resources of a source's kernels, by name."""
    _, log = compile_source(source, head_size, architecture, verbose=True)
    return {
        found["name"]: Usage(
            int(found["registers"]),
            int(found["stack"]),
            int(found["stores"]) + int(found["loads"]),
        )
        for found in PATTERN.finditer(log)
    }


def print_table() -> None:
    """Print the registers and spills of all kernels."""
    print(f"NVRTC {compiler_version()}: registers (spilled bytes, if any)")
    print(f"{'kernel':36}{'head':>5}" + "".join(f"{name:>9}" for name in ARCHITECTURES))
    for source in sources():
        for head_size in HEAD_SIZES:
            columns = [usage(source, head_size, name) for name in ARCHITECTURES]
            for name in sorted(columns[0]):
                cells = (column[name] for column in columns)
                row = "".join(f"{_cell(used):>9}" for used in cells)
                print(f"{name:36}{head_size:5}{row}", flush=True)


def _cell(used: Usage) -> str:
    spilled = used.spilled_bytes + used.stack_bytes
    return f"{used.registers}({spilled})" if spilled else str(used.registers)


if __name__ == "__main__":
    print_table()
