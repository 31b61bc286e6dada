// The Delta LSTM, version D, forward and backward (see reference.py for the law).
//
// Six matrices: W_g and R_g for the gates g = 0 main, 1 forget, 2 output. With p = softmax(y_{t-1})
// and the gates' values u, f, o:  c_t = f c_{t-1} + (1 - f) u,  y_t = c_t o.
//
// Backward, t = T-1 .. 0, with g_y the whole gradient of y_t and g_c that of c_t from row t+1:
//
//     g_c += g_y o           gradient of c_{t-1}: g_c f
//     dz_0 = g_c (1 - f)     dz_1 = g_c (c_{t-1} - u) f (1 - f)     dz_2 = g_y c_t o (1 - o)
//     all six matrices by rewind.cuh, dz_g being what W_g^T q_g and R_g^T p receive
//     dp = sum over R_g      gradient of y_{t-1}: p * (dp - p . dp); zero where row t forgot
//
// The forward has a warp for each gate, the backward one for each matrix; what all warps need of
// the cell, each computes for itself: that is cheaper than to wait for another one.
#include "rewind.cuh"

constexpr int GATES = 3;
constexpr int MATRICES = 2 * GATES;  // in the order W_0, W_1, W_2, R_0, R_1, R_2
enum { MAIN, FORGET, OUTPUT };

// Our own [T, B, H, 3, N] and [B, H, 3, N, N] are those of three times as many heads.
__device__ inline Place place_of_gate(Place at, int gate) {
  at.block = at.block * GATES + gate;
  at.blocks *= GATES;
  return at;
}

struct ForwardArguments {
  Sizes sizes;
  View q[GATES], k[GATES], v[GATES], beta[GATES];
  View recurrent_k[GATES], recurrent_v[GATES], recurrent_beta[GATES];
  Flags is_first;
  View initial[GATES], recurrent_initial[GATES], initial_cell, initial_output;
  float *y, *final, *recurrent_final, *final_cell, *final_output;
  float *error, *recurrent_error, *gates, *cell, *reading;  // for the backward; reading: p
};

struct ForwardRow {
  float q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(GATES * WARP, 1)
    delta_lstm_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stages, GATES * STAGE);
  SHARED_FLOATS(all_slots, GATES * 4 * WARP);
  SHARED_FLOATS(gates, 2 * GATES * WARP);  // from each warp to all; two sets
  const int m = threadIdx.x / WARP;
  float* stage = stages + m * STAGE;
  float *k = all_slots + m * 4 * WARP, *q = k + WARP, *recurrent_k = q + WARP;
  float* p = recurrent_k + WARP;
  const Place at = place_in_warp(a.sizes), mine = place_of_gate(at, m);
  const int T = a.sizes.time, N = a.sizes.keys;
  float weights[D], recurrent[D];
  load_column(weights, a.initial[m], at, N, N, stage);
  load_column(recurrent, a.recurrent_initial[m], at, N, N, stage);
  float cell = load_vector(a.initial_cell, at, N), y = load_vector(a.initial_output, at, N);
  auto load = [&](int t) {
    return ForwardRow{at.load(a.q[m], t, N), at.load(a.k[m], t, N), at.load(a.v[m], t, N),
                      at.load_scalar(a.beta[m], t), at.load(a.recurrent_k[m], t, N),
                      at.load(a.recurrent_v[m], t, N), at.load_scalar(a.recurrent_beta[m], t),
                      at.is_first(a.is_first, t)};
  };
  ForwardRow next = load(0);
  for (int t = 0; t < T; ++t) {
    const ForwardRow row = next;
    if (row.is_first) {
      clear(weights);
      clear(recurrent);
      cell = y = 0.f;
    }
    const float reading = warp_softmax(y, at.lane < N);
    k[at.lane] = row.k;
    q[at.lane] = row.q;
    recurrent_k[at.lane] = row.recurrent_k;
    p[at.lane] = reading;
    __syncwarp();
    next = load(t + 1);
    const float error = row.v - dot(weights, k);
    const float recurrent_error = row.recurrent_v - dot(recurrent, recurrent_k);
    const float update = row.beta * error;
    const float recurrent_update = row.recurrent_beta * recurrent_error;
    const float sum = (dot(weights, q) + update * dot_slots(k, q)) +
                      (dot(recurrent, p) + recurrent_update * dot_slots(recurrent_k, p));
    const float gate = m == MAIN ? sum : fast_sigmoid(sum);
    add_scaled(weights, update, k);
    add_scaled(recurrent, recurrent_update, recurrent_k);
    float* all = gates + (t % 2) * GATES * WARP;
    all[m * WARP + at.lane] = gate;
    __syncthreads();
    const float f = all[FORGET * WARP + at.lane];
    cell = f * cell + (1.f - f) * all[MAIN * WARP + at.lane];
    y = cell * all[OUTPUT * WARP + at.lane];
    mine.store(a.error, t, N, error);
    mine.store(a.recurrent_error, t, N, recurrent_error);
    mine.store(a.gates, t, N, gate);
    if (m == 0) at.store(a.y, t, N, y);
    if (m == 1) at.store(a.cell, t, N, cell);
    if (m == 2) at.store(a.reading, t, N, reading);
  }
  store_column(a.final, weights, mine, N, N);
  store_column(a.recurrent_final, recurrent, mine, N, N);
  if (m == 0) store_vector(a.final_output, y, at, N);
  if (m == 1) store_vector(a.final_cell, cell, at, N);
}

struct BackwardArguments {
  Sizes sizes;
  View query[GATES], key[MATRICES], strength[MATRICES];
  Flags is_first;
  View initial[MATRICES], initial_cell, grad_y, grad_final[MATRICES];
  View grad_final_cell, grad_final_output;
  float *error[2], *gates, *cell, *reading;  // [0] is W's, [1] is R's
  float *grad_query, *grad_key[2], *grad_value[2], *grad_strength[2];
  float *grad_initial[2], *grad_initial_cell, *grad_initial_output;
};

struct BackwardRow {
  float query, key, strength, error, reading, grad_y;
  float main, forget, output, cell, previous_cell;
};

// c_{t-1} as row t saw it.
__device__ inline float previous_cell(const BackwardArguments& a, const Place& at, int t, int N) {
  if (at.is_first(a.is_first, t)) return 0.f;
  return t == 0 ? load_vector(a.initial_cell, at, N) : at.load(a.cell, t - 1, N);
}

extern "C" __global__ void __launch_bounds__(MATRICES * WARP, 1)
    delta_lstm_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(stages, MATRICES * STAGE);
  SHARED_FLOATS(all_slots, MATRICES * REBUILT_TOGETHER * WARP);
  SHARED_FLOATS(parts, 2 * GATES * WARP);  // dp of each R_g, to all warps; two sets
  const int m = threadIdx.x / WARP, gate = m % GATES, kind = m / GATES;
  float *stage = stages + m * STAGE, *slots = all_slots + m * REBUILT_TOGETHER * WARP;
  float *q = slots, *k = q + WARP, *u = k + WARP, *g = u + WARP, *dv = g + WARP;
  const Place at = place_in_warp(a.sizes), mine = place_of_gate(at, gate);
  const int N = a.sizes.keys;
  Rewound memory;
  load_row(memory.gradient_row, a.grad_final[m], at, N, N, stage);
  load_column(memory.gradient_column, a.grad_final[m], at, N, N, stage);
  float grad_output = load_vector(a.grad_final_output, at, N);
  float grad_cell = load_vector(a.grad_final_cell, at, N);
  auto load = [&](int t) {
    const float reading = at.load(a.reading, t, N);
    return BackwardRow{kind == 0 ? at.load(a.query[gate], t, N) : reading,
                       at.load(a.key[m], t, N),
                       at.load_scalar(a.strength[m], t),
                       mine.load(a.error[kind], t, N),
                       reading,
                       at.load(a.grad_y, t, N),
                       place_of_gate(at, MAIN).load(a.gates, t, N),
                       place_of_gate(at, FORGET).load(a.gates, t, N),
                       place_of_gate(at, OUTPUT).load(a.gates, t, N),
                       at.load(a.cell, t, N),
                       previous_cell(a, at, t, N)};
  };
  for (int last = a.sizes.time - 1, first; last >= 0; last = first - 1) {
    first = segment_start(a.is_first, at, last);
    const bool fresh = at.is_first(a.is_first, first);
    clear(memory.weights);
    if (!fresh) load_row(memory.weights, a.initial[m], at, N, N, stage);
    rebuild(
        memory.weights, first, last, [&](int t) { return at.load(a.key[m], t, N); },
        [&](int t) { return at.load_scalar(a.strength[m], t) * mine.load(a.error[kind], t, N); },
        slots);
    BackwardRow next = load(last);
    for (int t = last; t >= first; --t) {
      const BackwardRow row = next;
      next = load(t - 1);
      const float grad_y = row.grad_y + grad_output;
      grad_cell += grad_y * row.output;
      float grad_sum = grad_cell * (1.f - row.forget);
      if (gate == FORGET) grad_sum *= (row.previous_cell - row.main) * row.forget;
      if (gate == OUTPUT) grad_sum = grad_y * row.cell * row.output * (1.f - row.output);
      grad_cell *= row.forget;
      q[at.lane] = row.query;
      k[at.lane] = row.key;
      u[at.lane] = row.strength * row.error;
      g[at.lane] = grad_sum;
      __syncwarp();
      const float grad_query = memory.read_backward(row.query, q, grad_sum, g);
      float* all = parts + (t % 2) * GATES * WARP;
      if (kind == 1) all[gate * WARP + at.lane] = grad_query;
      const float grad_update = memory.update_gradient(k);
      float grad_key = memory.rewind(row.key, u);
      const float grad_value = row.strength * grad_update;
      dv[at.lane] = grad_value;
      __syncthreads();
      grad_key += memory.answer_backward(row.key, k, grad_value, dv);
      grad_output = warp_softmax_backward(
          row.reading, (all[at.lane] + all[WARP + at.lane]) + all[2 * WARP + at.lane]);
      if (kind == 0) mine.store(a.grad_query, t, N, grad_query);
      mine.store(a.grad_key[kind], t, N, grad_key);
      mine.store(a.grad_value[kind], t, N, grad_value);
      mine.store_scalar(a.grad_strength[kind], t, warp_sum(grad_update * row.error));
      __syncwarp();  // before the next row, or the next segment's rebuild, writes the slots
    }
    if (fresh) {
      memory.forget_gradient();
      grad_output = grad_cell = 0.f;
    }
  }
  store_column(a.grad_initial[kind], memory.gradient_column, mine, N, N);
  if (m == 0) store_vector(a.grad_initial_output, grad_output, at, N);
  if (m == 1) store_vector(a.grad_initial_cell, grad_cell, at, N);
}
