// The delta rule, forward and backward (see reference.py for the definition).
//
// Backward, in two passes that never rewind W (after flash-linear-attention). With G the gradient
// of W_t, g that of y_t, u = beta e, and e = v - W_{t-1}^T k as stored by the forward pass:
//
//   t = T-1 .. 0:  G += q g^T    du = G^T k    dk = G u    dbeta = du . e    dv = beta du
//                  G -= k dv^T   and, where row t reset, G = 0
//   t = 0 .. T-1:  dk -= W_{t-1} dv    W_t = W_{t-1} + k u^T    dq = W_t g
#include "matrix.cuh"

struct ForwardArguments {
  Sizes sizes;
  View q, k, v, beta;
  Flags is_first;
  View initial;
  float *y, *final, *error;
};

struct ForwardRow {
  float q, k, v, beta;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    delta_rule_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 4 * SLOT);
  const Place at(a.sizes);
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float weights[ENTRIES];
  load_column(weights, a.initial, at, K, V, stage);
  auto load = [&](int t) {
    return ForwardRow{at.load(a.q, t, K), at.load(a.k, t, K), at.load(a.v, t, V),
                      at.load_scalar(a.beta, t), at.is_first(a.is_first, t)};
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
    const float error = row.v - dot(weights, k);
    const float update = row.beta * error;
    // W_t^T q = W_{t-1}^T q + u (k . q): the output does not wait for the write.
    at.store(a.y, t, V, dot(weights, q) + update * dot_slots(k, q));
    at.store(a.error, t, V, error);
    add_scaled(weights, update, k);
  }
  store_column(a.final, weights, at, K, V, stage);
}

struct BackwardArguments {
  Sizes sizes;
  View q, k, v, beta;
  Flags is_first;
  View initial, grad_y, grad_final;
  float *error, *grad_q, *grad_k, *grad_v, *grad_beta, *grad_initial;
};

struct BackwardRow {
  float q, k, beta, error, grad_y, grad_v, grad_k;
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
    return BackwardRow{at.load(a.q, t, K), at.load(a.k, t, K), at.load_scalar(a.beta, t),
                       at.load(a.error, t, V), at.load(a.grad_y, t, V), 0.f, 0.f,
                       at.is_first(a.is_first, t)};
  };
  BackwardRow next = load(T - 1);
  for (int t = T - 1; t >= 0; --t) {
    const BackwardRow row = next;
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
    return BackwardRow{0.f, at.load(a.k, t, K), at.load_scalar(a.beta, t), at.load(a.error, t, V),
                       at.load(a.grad_y, t, V), at.load(a.grad_v, t, V), at.load(a.grad_k, t, K),
                       at.is_first(a.is_first, t)};
  };
  BackwardRow next = load(0);
  for (int t = 0; t < T; ++t) {
    const BackwardRow row = next;
    float *u = slots + (t % 2) * 3 * SLOT, *g = u + SLOT, *dv = g + SLOT;
    u[at.lane] = row.beta * row.error;
    g[at.lane] = row.grad_y;
    dv[at.lane] = row.grad_v;
    sync();
    next = load(t + 1);
    if (row.is_first) clear(weights);
    at.store(a.grad_k, t, K, row.grad_k - dot(weights, dv));
    add_scaled(weights, row.k, u);
    at.store(a.grad_q, t, K, dot(weights, g));
  }
}

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    delta_rule_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 6 * SLOT);
  const Place at(a.sizes);
  gradients_in_reverse(a, at, slots, stage);
  gradients_of_reading(a, at, slots, stage);
}
