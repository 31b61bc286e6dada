// Linear attention, forward and backward (see reference.py for the definition).
//
// Backward, in two passes; G is the gradient of W_t, g that of y_t:
//
//   t = T-1 .. 0:  G += q g^T    dk = G v    dv = G^T k    and, where row t reset, G = 0
//   t = 0 .. T-1:  W_t = W_{t-1} + k v^T     dq = W_t g
#include "matrix.cuh"

struct Row {
  float q, k, v, grad_y;
  bool is_first;
};

struct ForwardArguments {
  Sizes sizes;
  View q, k, v;
  Flags is_first;
  View initial;
  float *y, *final;
};

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    linear_attention_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 4 * SLOT);
  const Place at(a.sizes);
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float weights[ENTRIES];
  load_column(weights, a.initial, at, K, V, stage);
  auto load = [&](int t) {
    return Row{at.load(a.q, t, K), at.load(a.k, t, K), at.load(a.v, t, V), 0.f,
               at.is_first(a.is_first, t)};
  };
  Row next = load(0);
  for (int t = 0; t < T; ++t) {
    const Row row = next;
    float *k = slots + (t % 2) * 2 * SLOT, *q = k + SLOT;
    k[at.lane] = row.k;
    q[at.lane] = row.q;
    sync();
    next = load(t + 1);
    if (row.is_first) clear(weights);
    add_scaled(weights, row.v, k);
    at.store(a.y, t, V, dot(weights, q));
  }
  store_column(a.final, weights, at, K, V, stage);
}

struct BackwardArguments {
  Sizes sizes;
  View q, k, v;
  Flags is_first;
  View initial, grad_y, grad_final;
  float *grad_q, *grad_k, *grad_v, *grad_initial;
};

__device__ inline void gradients_in_reverse(const BackwardArguments& a, const Place& at,
                                            float* slots, float* stage) {
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float row_gradient[ENTRIES], column_gradient[ENTRIES];
  load_row(row_gradient, a.grad_final, at, K, V, stage);
  load_column(column_gradient, a.grad_final, at, K, V, stage);
  auto load = [&](int t) {
    return Row{at.load(a.q, t, K), at.load(a.k, t, K), at.load(a.v, t, V),
               at.load(a.grad_y, t, V), at.is_first(a.is_first, t)};
  };
  Row next = load(T - 1);
  for (int t = T - 1; t >= 0; --t) {
    const Row row = next;
    float *q = slots + (t % 2) * 4 * SLOT, *k = q + SLOT, *v = k + SLOT, *g = v + SLOT;
    q[at.lane] = row.q;
    k[at.lane] = row.k;
    v[at.lane] = row.v;
    g[at.lane] = row.grad_y;
    sync();
    next = load(t - 1);
    add_scaled(row_gradient, row.q, g);
    add_scaled(column_gradient, row.grad_y, q);
    at.store(a.grad_k, t, K, dot(row_gradient, v));
    at.store(a.grad_v, t, V, dot(column_gradient, k));
    if (row.is_first) {
      clear(row_gradient);
      clear(column_gradient);
    }
  }
  store_column(a.grad_initial, column_gradient, at, K, V, stage);
}

__device__ inline void gradients_of_reading(const BackwardArguments& a, const Place& at,
                                            float* slots, float* stage) {
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float weights[ENTRIES];
  load_row(weights, a.initial, at, K, V, stage);
  auto load = [&](int t) {
    return Row{0.f, at.load(a.k, t, K), at.load(a.v, t, V), at.load(a.grad_y, t, V),
               at.is_first(a.is_first, t)};
  };
  Row next = load(0);
  for (int t = 0; t < T; ++t) {
    const Row row = next;
    float *v = slots + (t % 2) * 2 * SLOT, *g = v + SLOT;
    v[at.lane] = row.v;
    g[at.lane] = row.grad_y;
    sync();
    next = load(t + 1);
    if (row.is_first) clear(weights);
    add_scaled(weights, row.k, v);
    at.store(a.grad_q, t, K, dot(weights, g));
  }
}

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    linear_attention_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 8 * SLOT);
  const Place at(a.sizes);
  gradients_in_reverse(a, at, slots, stage);
  gradients_of_reading(a, at, slots, stage);
}
