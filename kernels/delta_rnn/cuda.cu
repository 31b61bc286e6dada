// The Delta RNN, versions A and B, forward and backward (see reference.py for the laws).
//
// r_t is what reads the recurrent matrix: softmax(y_{t-1}) in version B, y_{t-1} in version A.
// Backward, t = T-1 .. 0, with g the whole gradient of y_t (from above, and from r_{t+1}):
//
//     version A:  g = y * (g - y . g)                    through the softmax of the sum
//     both matrices, each with its own q or r, key, error and strength, by rewind.cuh
//     gradient of y_{t-1}:  dr in version A, r * (dr - r . dr) in B; zero where row t forgot
#include "rewind.cuh"

struct ForwardArguments {
  Sizes sizes;  // option: 1 for version A, 0 for version B
  View q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;
  Flags is_first;
  View initial, recurrent_initial, initial_output;
  float *y, *final, *recurrent_final, *final_output;
  float *error, *recurrent_error, *reading;  // for the backward; reading: y_t in A, r_t in B
};

struct ForwardRow {
  float q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    delta_rnn_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 8 * SLOT);
  const Place at(a.sizes);
  const int T = a.sizes.time, N = a.sizes.keys;
  const bool version_a = a.sizes.option;
  float weights[D], recurrent[D];
  load_column(weights, a.initial, at, N, N, stage);
  load_column(recurrent, a.recurrent_initial, at, N, N, stage);
  float y = load_vector(a.initial_output, at, N);
  auto load = [&](int t) {
    return ForwardRow{at.load(a.q, t, N), at.load(a.k, t, N), at.load(a.v, t, N),
                      at.load_scalar(a.beta, t), at.load(a.recurrent_k, t, N),
                      at.load(a.recurrent_v, t, N), at.load_scalar(a.recurrent_beta, t),
                      at.is_first(a.is_first, t)};
  };
  ForwardRow next = load(0);
  for (int t = 0; t < T; ++t) {
    const ForwardRow row = next;
    if (row.is_first) {
      clear(weights);
      clear(recurrent);
      y = 0.f;
    }
    const float query = version_a ? y : warp_softmax(y, at.lane < N);
    float *k = slots + (t % 2) * 4 * SLOT, *q = k + SLOT;  // two sets: one barrier a row
    float *recurrent_k = q + SLOT, *r = recurrent_k + SLOT;
    k[at.lane] = row.k;
    q[at.lane] = row.q;
    recurrent_k[at.lane] = row.recurrent_k;
    r[at.lane] = query;
    sync();
    next = load(t + 1);
    const float error = row.v - dot(weights, k);
    const float recurrent_error = row.recurrent_v - dot(recurrent, recurrent_k);
    const float update = row.beta * error;
    const float recurrent_update = row.recurrent_beta * recurrent_error;
    y = (dot(weights, q) + update * dot_slots(k, q)) +
        (dot(recurrent, r) + recurrent_update * dot_slots(recurrent_k, r));
    if (version_a) y = warp_softmax(y, at.lane < N);
    add_scaled(weights, update, k);
    add_scaled(recurrent, recurrent_update, recurrent_k);
    at.store(a.y, t, N, y);
    at.store(a.error, t, N, error);
    at.store(a.recurrent_error, t, N, recurrent_error);
    at.store(a.reading, t, N, version_a ? y : query);
  }
  store_column(a.final, weights, at, N, N);
  store_column(a.recurrent_final, recurrent, at, N, N);
  store_vector(a.final_output, y, at, N);
}

// [0] is W's, [1] is R's: two warps, one matrix each.
struct BackwardArguments {
  Sizes sizes;
  View query, key[2], strength[2];
  Flags is_first;
  View initial[2], initial_output, grad_y, grad_final[2], grad_final_output;
  float *error[2], *reading;
  float *grad_query, *grad_key[2], *grad_value[2], *grad_strength[2];
  float *grad_initial[2], *grad_initial_output;
};

struct BackwardRow {
  float query, key, strength, error, grad_y, output;
};

// r_t from what the forward kept.
__device__ inline float recurrent_query(const BackwardArguments& a, const Place& at, int t, int N) {
  if (!a.sizes.option) return at.load(a.reading, t, N);
  if (at.is_first(a.is_first, t)) return 0.f;
  return t == 0 ? load_vector(a.initial_output, at, N) : at.load(a.reading, t - 1, N);
}

extern "C" __global__ void __launch_bounds__(2 * WARP, 1)
    delta_rnn_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(all_slots, 2 * REBUILT_TOGETHER * WARP);
  SHARED_FLOATS(stages, 2 * STAGE);
  SHARED_FLOATS(gradients, 2 * WARP);  // of y_t, from R's warp to both; two sets
  const int m = threadIdx.x / WARP;
  const bool version_a = a.sizes.option;
  float* stage = stages + m * STAGE;
  const Place at = place_in_warp(a.sizes);
  const int N = a.sizes.keys;
  float* slots = all_slots + m * REBUILT_TOGETHER * WARP;
  float *q = slots, *k = q + WARP, *u = k + WARP, *dv = u + WARP;
  Rewound memory;
  load_row(memory.gradient_row, a.grad_final[m], at, N, N, stage);
  load_column(memory.gradient_column, a.grad_final[m], at, N, N, stage);
  float grad_output = load_vector(a.grad_final_output, at, N);
  auto load = [&](int t) {
    return BackwardRow{m == 0 ? at.load(a.query, t, N) : recurrent_query(a, at, t, N),
                       at.load(a.key[m], t, N), at.load_scalar(a.strength[m], t),
                       at.load(a.error[m], t, N), at.load(a.grad_y, t, N),
                       version_a ? at.load(a.reading, t, N) : 0.f};
  };
  for (int last = a.sizes.time - 1, first; last >= 0; last = first - 1) {
    first = segment_start(a.is_first, at, last);
    const bool fresh = at.is_first(a.is_first, first);
    clear(memory.weights);
    if (!fresh) load_row(memory.weights, a.initial[m], at, N, N, stage);
    rebuild(
        memory.weights, first, last, [&](int t) { return at.load(a.key[m], t, N); },
        [&](int t) { return at.load_scalar(a.strength[m], t) * at.load(a.error[m], t, N); },
        slots);
    BackwardRow next = load(last);
    for (int t = last; t >= first; --t) {
      const BackwardRow row = next;
      next = load(t - 1);
      float* g = gradients + (t % 2) * WARP;
      q[at.lane] = row.query;
      k[at.lane] = row.key;
      u[at.lane] = row.strength * row.error;
      if (m == 1) {
        const float above = row.grad_y + grad_output;
        g[at.lane] = version_a ? warp_softmax_backward(row.output, above) : above;
      }
      __syncthreads();
      const float grad_query = memory.read_backward(row.query, q, g[at.lane], g);
      const float grad_update = memory.update_gradient(k);
      float grad_key = memory.rewind(row.key, u);
      const float grad_value = row.strength * grad_update;
      dv[at.lane] = grad_value;
      __syncwarp();
      grad_key += memory.answer_backward(row.key, k, grad_value, dv);
      if (m == 1)
        grad_output = version_a ? grad_query : warp_softmax_backward(row.query, grad_query);
      if (m == 0) at.store(a.grad_query, t, N, grad_query);
      at.store(a.grad_key[m], t, N, grad_key);
      at.store(a.grad_value[m], t, N, grad_value);
      at.store_scalar(a.grad_strength[m], t, warp_sum(grad_update * row.error));
      __syncwarp();  // before the next row, or the next segment's rebuild, writes the slots
    }
    if (fresh) {
      memory.forget_gradient();
      grad_output = 0.f;
    }
  }
  store_column(a.grad_initial[m], memory.gradient_column, at, N, N);
  if (m == 1) store_vector(a.grad_initial_output, grad_output, at, N);
}
