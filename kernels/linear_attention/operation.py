"""The operation, in a separate module because the normaliser imports it."""

from fastweights.kernels.linear_attention import chunked, reference
from fastweights.kernels.machinery.operation import build_operation

linear_attention = build_operation(
    "linear_attention",
    reference.unroll,
    saved={},
    oblong=True,
    chunked=chunked.unroll,
)
