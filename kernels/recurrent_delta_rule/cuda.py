"""The recurrent delta rule on CUDA tensors; the kernels are in `cuda.cu`."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source(
    saved={  # after feature map and sigmoid; error is v - W_{t-1}^T k, hidden is h_t
        "query": "T B H K",
        "key": "T B H K",
        "error": "T B H V",
        "strength": "T B H",
        "hidden": "T B H V",
        "query_scale": "T B H",  # 1 / length of the input to the feature map unit
        "key_scale": "T B H",
    },
    options={"feature_map": ("softmax", "unit"), "strength_map": ("sigmoid", "double_sigmoid")},
    outer_sums={
        "recurrent.query": ("hidden", "q"),
        "recurrent.key": ("hidden", "k"),
        "recurrent.value": ("hidden", "v"),
        "recurrent.strength": ("hidden", "beta"),
    },
)
