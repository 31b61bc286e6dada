from kernels.delta_rule.reference import DeltaRuleState
from kernels.dispatch import Operation, PyTorch
from kernels.gated_delta_rule import chunked, reference
from kernels.signature import Signature

_signature = Signature("gated_delta_rule", reference.unroll)
gated_delta_rule = Operation(
    _signature,
    {
        "reference": PyTorch(_signature, reference.unroll),
        "chunked": PyTorch(_signature, chunked.unroll),
    },
)

__all__ = ["DeltaRuleState", "gated_delta_rule"]
