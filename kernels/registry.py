"""Operations that have their own kernels, by name, for the self-test, benchmarks and tests."""

from fastweights.kernels.delta_lstm import delta_lstm
from fastweights.kernels.delta_rnn import delta_rnn
from fastweights.kernels.delta_rule import delta_rule
from fastweights.kernels.elementwise_lstm import elementwise_lstm
from fastweights.kernels.gated_delta_rule import gated_delta_rule
from fastweights.kernels.gated_linear_attention import gated_linear_attention
from fastweights.kernels.linear_attention import linear_attention
from fastweights.kernels.lstm import lstm
from fastweights.kernels.machinery.dispatch import Operation
from fastweights.kernels.recurrent_delta_rule import recurrent_delta_rule
from fastweights.kernels.self_referential import self_referential

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        linear_attention,
        delta_rule,
        gated_linear_attention,
        gated_delta_rule,
        recurrent_delta_rule,
        delta_rnn,
        delta_lstm,
        self_referential,
        lstm,
        elementwise_lstm,
    )
}
