// The gated delta rule, forward and backward (see reference.py for the definition): the delta
// rule's two passes (delta_rule/cuda.cu) on F_t = a_t W_{t-1} in place of W_{t-1}, with
// a_t = exp(g_t).
//
//   t = T-1 .. 0:  G += q g^T    du = G^T k    dk = G u    dbeta = du . e    dv = beta du
//                  G = a_t (G - k dv^T)   and, where row t reset, G = 0
//   t = 0 .. T-1:  F = a_t W_{t-1}    dk -= F dv    W_t = F + k u^T    dq = W_t g
//                  and row t's change of <dL/dW, W>: dq . q - dv . v. Its sum over later rows of
//                  the segment, starting from <dL/dW_T, W_T>, is the gradient of g_t (backward.md)
#include "matrix.cuh"

struct ForwardArguments {
  Sizes sizes;
  View q, k, v, beta, log_decay;
  Flags is_first;
  View initial;
  float *y, *final, *error;
};

struct ForwardRow {
  float q, k, v, beta, log_decay;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    gated_delta_rule_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 4 * SLOT);
  const Place at(a.sizes);
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float weights[ENTRIES];
  load_column(weights, a.initial, at, K, V, stage);
  auto load = [&](int t) {
    return ForwardRow{at.load(a.q, t, K), at.load(a.k, t, K), at.load(a.v, t, V),
                      at.load_scalar(a.beta, t), at.load_scalar(a.log_decay, t),
                      at.is_first(a.is_first, t)};
  };
  ForwardRow next = load(0);
  for (int t = 0; t < T; ++t) {
    const ForwardRow row = next;
    float* k = slots + (t % 2) * 2 * SLOT;  // two sets of slots: one barrier per row suffices
    float* q = k + SLOT;
    k[at.lane] = row.k;
    q[at.lane] = row.q;
    sync();
    next = load(t + 1);
    if (row.is_first) clear(weights);
    scale(weights, expf(row.log_decay));
    const float error = row.v - dot(weights, k);
    const float update = row.beta * error;
    // W_t^T q = F^T q + u (k . q): the output does not wait for the write.
    at.store(a.y, t, V, dot(weights, q) + update * dot_slots(k, q));
    at.store(a.error, t, V, error);
    add_scaled(weights, update, k);
  }
  store_column(a.final, weights, at, K, V, stage);
}

struct BackwardArguments {
  Sizes sizes;
  View q, k, v, beta, log_decay;
  Flags is_first;
  View initial, grad_y, grad_final;
  float *error, *grad_q, *grad_k, *grad_v, *grad_beta, *grad_log_decay, *grad_initial;
};

struct ReverseRow {
  float q, k, beta, log_decay, error, grad_y;
  bool is_first;
};

__device__ inline void gradients_in_reverse(const BackwardArguments& a, const Place& at,
                                            float* slots, float* stage) {
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float *q = slots, *k = q + SLOT, *u = k + SLOT, *g = u + SLOT, *dv = g + SLOT;
  float row_gradient[ENTRIES], column_gradient[ENTRIES];
  load_row(row_gradient, a.grad_final, at, K, V, stage);
  load_column(column_gradient, a.grad_final, at, K, V, stage);
  auto load = [&](int t) {
    return ReverseRow{at.load(a.q, t, K),        at.load(a.k, t, K),
                      at.load_scalar(a.beta, t), at.load_scalar(a.log_decay, t),
                      at.load(a.error, t, V),    at.load(a.grad_y, t, V),
                      at.is_first(a.is_first, t)};
  };
  ReverseRow next = load(T - 1);
  for (int t = T - 1; t >= 0; --t) {
    const ReverseRow row = next;
    q[at.lane] = row.q;
    k[at.lane] = row.k;
    u[at.lane] = row.beta * row.error;
    g[at.lane] = row.grad_y;
    sync();
    next = load(t - 1);
    add_scaled(row_gradient, row.q, g);
    add_scaled(column_gradient, row.grad_y, q);
    const float grad_update = dot(column_gradient, k);
    const float grad_v = row.beta * grad_update;
    at.store(a.grad_v, t, V, grad_v);
    at.store(a.grad_k, t, K, dot(row_gradient, u));
    dv[at.lane] = grad_v;
    sync();
    add_scaled(row_gradient, -row.k, dv);
    add_scaled(column_gradient, -grad_v, k);
    sync();
    at.store_scalar(a.grad_beta, t, lane_sum(grad_update * row.error));
    const float kept = expf(row.log_decay);
    scale(row_gradient, kept);
    scale(column_gradient, kept);
    if (row.is_first) {
      clear(row_gradient);
      clear(column_gradient);
    }
  }
  store_column(a.grad_initial, column_gradient, at, K, V, stage);
}

struct ReadRow {
  float q, k, v, beta, log_decay, error, grad_y, grad_v, grad_k;
  bool is_first;
};

__device__ inline void gradients_of_reading(const BackwardArguments& a, const Place& at,
                                            float* slots, float* stage) {
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float weights[ENTRIES];
  load_row(weights, a.initial, at, K, V, stage);
  auto load = [&](int t) {
    return ReadRow{at.load(a.q, t, K),      at.load(a.k, t, K),
                   at.load(a.v, t, V),      at.load_scalar(a.beta, t),
                   at.load_scalar(a.log_decay, t),
                   at.load(a.error, t, V),  at.load(a.grad_y, t, V),
                   at.load(a.grad_v, t, V), at.load(a.grad_k, t, K),
                   at.is_first(a.is_first, t)};
  };
  ReadRow next = load(0);
  for (int t = 0; t < T; ++t) {
    const ReadRow row = next;
    float *u = slots + (t % 2) * 3 * SLOT, *g = u + SLOT, *dv = g + SLOT;
    u[at.lane] = row.beta * row.error;
    g[at.lane] = row.grad_y;
    dv[at.lane] = row.grad_v;
    sync();
    next = load(t + 1);
    if (row.is_first) clear(weights);
    scale(weights, expf(row.log_decay));
    at.store(a.grad_k, t, K, row.grad_k - dot(weights, dv));
    add_scaled(weights, row.k, u);
    const float grad_q = dot(weights, g);
    at.store(a.grad_q, t, K, grad_q);
    at.store_scalar(a.grad_log_decay, t, lane_sum(grad_q * row.q - row.grad_v * row.v));
  }
  // One thread sums from the last row backward. The sum over lanes is also a barrier for the
  // threads that stored the rows' changes.
  float last[ENTRIES], later = 0.f;
  load_row(last, a.grad_final, at, K, V, stage);
#pragma unroll
  for (int n = 0; n < ENTRIES; ++n) later += weights[n] * last[n];
  later = lane_sum(part_sum(later));
  for (int t = T - 1; t >= 0 && threadIdx.x == 0; --t) {
    later += a.grad_log_decay[at.index(t, 1)];
    if (at.is_first(a.is_first, t)) later = 0.f;
    at.store_scalar(a.grad_log_decay, t, later);
  }
}

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    gated_delta_rule_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 6 * SLOT);
  const Place at(a.sizes);
  gradients_in_reverse(a, at, slots, stage);
  gradients_of_reading(a, at, slots, stage);
}
