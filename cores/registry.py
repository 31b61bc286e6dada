"""All cores by their `--core` names: one line each, in the order of all lists.

`CORES` maps the names imported here. The `KIND` in a core's file describes the rest.
"""

from fastweights.cores.feedforward import KIND as feedforward
from fastweights.cores.feedforward_gated import KIND as feedforward_gated
from fastweights.cores.cnn import KIND as cnn
from fastweights.cores.elman import KIND as elman
from fastweights.cores.gru import KIND as gru
from fastweights.cores.lstm import KIND as lstm
from fastweights.cores.e_lstm import KIND as e_lstm
from fastweights.cores.qrnn import KIND as qrnn
from fastweights.cores.stack_rnn import KIND as stack_rnn
from fastweights.cores.transformer import KIND as transformer
from fastweights.cores.linear_transformer import KIND as lt
from fastweights.cores.delta_net import KIND as delta_net
from fastweights.cores.delta_mlp import KIND as delta_mlp
from fastweights.cores.delta_delta import KIND as delta_delta
from fastweights.cores.recurrent_delta_net import KIND as rdn
from fastweights.cores.recurrent_delta_net import LARGE as rdn_large
from fastweights.cores.delta_rnn import KIND as delta_rnn
from fastweights.cores.delta_lstm import KIND as delta_lstm
from fastweights.cores.self_referential import KIND as srwm
from fastweights.cores.gated_delta_net import KIND as gated_delta_net
from fastweights.cores.delta_product import KIND as delta_product
from fastweights.cores.delta_product import GATED as gated_delta_product
from fastweights.cores.matrix_lstm import KIND as mlstm
