"""The self-referential weight matrix on CUDA tensors; the kernels are in `cuda.cu`."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source(
    saved={  # after feature map and sigmoid; error is W^T (query - key), before the strengths
        "query": "T B H D",
        "key": "T B H D",
        "strength": "T B H 4",
        "error": "T B H 3*D+4",
    },
    options={"feature_map": ("softmax",), "strength_map": ("sigmoid", "double_sigmoid")},
    forward_warps=(4, 16),
    backward_warps=(3, 12),
)
