from kernels.dispatch import Operation
from kernels.self_referential import reference
from kernels.self_referential.reference import SelfReferentialState

self_referential = Operation("self_referential", reference.unroll)

__all__ = ["SelfReferentialState", "self_referential"]
