"""Reading and writing a batch of fast-weight matrices W [B, H, K, V], key axis first: y = W^T q."""

from torch import Tensor


def read_memory(weights: Tensor, query: Tensor) -> Tensor:
    """Return W^T q: weights [B, H, K, V], query [B, H, K] -> [B, H, V]."""
    return (query.unsqueeze(-2) @ weights).squeeze(-2)


def add_outer(weights: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return W + k v^T, out of place: key [B, H, K], value [B, H, V]."""
    return weights + key.unsqueeze(-1) * value.unsqueeze(-2)


def delta_write(weights: Tensor, key: Tensor, value: Tensor, strength: Tensor) -> Tensor:
    """Apply the delta rule: W + k (beta (v - W^T k))^T, with strength beta [B, H].

    Moves the value stored at `key` toward `value` (Widrow & Hoff 1960; Schlag et al. 2021, eq. 24).
    """
    return add_outer(weights, key, strength.unsqueeze(-1) * (value - read_memory(weights, key)))
