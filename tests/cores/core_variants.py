"""Variants of the cores with options other than their defaults, by name."""

from fastweights.cores import CORES

TWO_MAPS = {"feature_map": "elu_sum", "recurrent_feature_map": "softmax"}
DELTA_RULES = [name for name in CORES if "max_write_strength" in CORES[name].options()]
REVERSING = {"max_write_strength": 2, "feature_map": "unit"}  # eigenvalues down to -1
VARIANTS = {
    "transformer, window": ("transformer", {"window": 3}),
    "transformer, no positions": ("transformer", {"positions": "none"}),
    "transformer, post-norm": ("transformer", {"norm": "post"}),
    "delta_mlp, version A": ("delta_mlp", {"version": "A"}),
    "delta_product, three steps": ("delta_product", {"steps_per_token": 3}),
    "gated_delta_product, one step": ("gated_delta_product", {"steps_per_token": 1}),
    "qrnn, two layers": ("qrnn", {"layers": 2, "pooling": "ifo", "window": 3}),
    "qrnn, window of one": ("qrnn", {"window": 1}),
    "cnn, two layers": ("cnn", {"layers": 2, "window": 3}),
    "stack_rnn, two stacks": ("stack_rnn", {"stacks": 2, "stack_depth": 2}),
    "lt, normalised": ("lt", {"normaliser": "key_sum"}),
    "delta_rnn, version A": ("delta_rnn", {"version": "A"}),
    "delta_rnn, two feature maps": ("delta_rnn", TWO_MAPS),
    "delta_lstm, two feature maps": ("delta_lstm", TWO_MAPS),
    **{f"delta_lstm, version {v}": ("delta_lstm", {"version": v}) for v in "ABC"},
    "mlstm, exponential": ("mlstm", {"forget_gate": "exponential"}),
    "delta_net, post-norm": ("delta_net", {"norm": "post"}),
    "srwm, as in the published code": ("srwm", {"norm": "legacy_raw", "input_map": "identity"}),
    "rdn, convolved": ("rdn", {"convolution": 4}),
    "mlstm, convolved": ("mlstm", {"convolution": 2}),
    "rdn, as in language models": ("rdn", {"norm": "legacy_pre", "output_scale": "head_size"}),
    **{f"{core}, strengths to two": (core, REVERSING) for core in DELTA_RULES},
}
