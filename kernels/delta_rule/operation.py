"""The operation, in a module of its own so that the wide form can use it."""

from kernels.delta_rule import chunked, reference
from kernels.operation import build_operation

delta_rule = build_operation(
    "delta_rule",
    reference.unroll,
    saved={"error": "T B H V"},
    chunked=chunked.unroll,
)
