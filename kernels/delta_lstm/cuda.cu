// The Delta LSTM, version D, forward and backward (see reference.py for the definition).
//
// Six matrices: W_g and R_g for the gates g = 0 main, 1 forget, 2 output. With p = softmax(y_{t-1})
// and the gates' values u, f, o:  c_t = f c_{t-1} + (1 - f) u,  y_t = c_t o.
//
// Backward, t = T-1 .. 0, with g_y the full gradient of y_t and g_c that of c_t from row t+1:
//
//     g_c += g_y o           gradient of c_{t-1}: g_c f
//     dz_0 = g_c (1 - f)     dz_1 = g_c (c_{t-1} - u) f (1 - f)     dz_2 = g_y c_t o (1 - o)
//     all six matrices by rewind.cuh, dz_g being what W_g^T q_g and R_g^T p receive
//     dp = sum over R_g      gradient of y_{t-1}: p * (dp - p . dp); zero where row t reset
//
// The forward pass has a group of threads per gate, the backward pass one per matrix. Every group
// computes the cell values it needs itself, which is cheaper than waiting for another group. At D =
// 64 six matrices and their gradients do not fit into one block's registers. The backward pass then
// walks the unroll twice: first with the R_g, on which alone g_y depends, then with the W_g.
#include "rewind.cuh"

constexpr int GATES = 3;
constexpr int MATRICES = 2 * GATES;  // in the order W_0, W_1, W_2, R_0, R_1, R_2
constexpr bool TOGETHER = GROUP == WARP;
constexpr int HELD = TOGETHER ? MATRICES : GATES;  // matrices per block in the backward pass
enum { MAIN, FORGET, OUTPUT };
enum { SLOW, RECURRENT };  // W or R

// Our own [T, B, H, 3, N] and [B, H, 3, K, V] are laid out as for three times as many heads.
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
  float *error, *recurrent_error, *gates, *cell, *reading;  // for backward; reading: p
};

struct ForwardRow {
  float q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(GATES * GROUP, 1)
    delta_lstm_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stages, GATES * STAGE);
  SHARED_FLOATS(all_slots, GATES * 5 * SLOT);
  SHARED_FLOATS(gates, 2 * GATES * SLOT);  // from each group to all groups; two sets
  const int m = group_of_thread();
  float* stage = stages + m * STAGE;
  float *k = all_slots + m * 5 * SLOT, *q = k + SLOT, *recurrent_k = q + SLOT;
  float *p = recurrent_k + SLOT, *cell = p + SLOT;  // c_t in a slot saves a register
  const Place at(a.sizes), mine = place_of_gate(at, m);
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float weights[ENTRIES], recurrent[ENTRIES];
  load_column(weights, a.initial[m], at, K, V, stage);
  load_column(recurrent, a.recurrent_initial[m], at, V, V, stage);
  cell[at.lane] = load_vector(a.initial_cell, at, V);
  float y = load_vector(a.initial_output, at, V);
  auto load = [&](int t) {
    return ForwardRow{at.load(a.q[m], t, K), at.load(a.k[m], t, K), at.load(a.v[m], t, V),
                      at.load_scalar(a.beta[m], t), at.load(a.recurrent_k[m], t, V),
                      at.load(a.recurrent_v[m], t, V), at.load_scalar(a.recurrent_beta[m], t),
                      at.is_first(a.is_first, t)};
  };
  ForwardRow next = load(0);
  for (int t = 0; t < T; ++t) {
    const ForwardRow row = next;
    if (row.is_first) {
      clear(weights);
      clear(recurrent);
      cell[at.lane] = y = 0.f;
    }
    p[at.lane] = softmax(y, at.lane < V);
    k[at.lane] = row.k;
    q[at.lane] = row.q;
    recurrent_k[at.lane] = row.recurrent_k;
    sync();
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
    float* all = gates + (t % 2) * GATES * SLOT;
    all[m * SLOT + at.lane] = gate;
    mine.store(a.error, t, V, error);
    mine.store(a.recurrent_error, t, V, recurrent_error);
    mine.store(a.gates, t, V, gate);
    if (m == 2) at.store(a.reading, t, V, p[at.lane]);
    const float previous_cell = cell[at.lane];  // read by all parts of a lane before one writes it
    __syncthreads();
    const float f = all[FORGET * SLOT + at.lane];
    const float next_cell = f * previous_cell + (1.f - f) * all[MAIN * SLOT + at.lane];
    cell[at.lane] = next_cell;
    y = next_cell * all[OUTPUT * SLOT + at.lane];
    if (m == 0) at.store(a.y, t, V, y);
    if (m == 1) at.store(a.cell, t, V, next_cell);
  }
  store_column(a.final, weights, mine, K, V, stage);
  store_column(a.recurrent_final, recurrent, mine, V, V, stage);
  if (m == 0) store_vector(a.final_output, y, at, V);
  if (m == 1) store_vector(a.final_cell, cell[at.lane], at, V);
}

struct Written {
  View key[GATES], value[GATES], strength[GATES];
};
struct WrittenGradients {
  float *key, *value, *strength;
};

struct BackwardArguments {
  Sizes sizes;
  View query[GATES];
  Written written[2];  // SLOW, RECURRENT
  Flags is_first;
  View initial[2][GATES], initial_cell, initial_output;
  View grad_y, grad_final[2][GATES], grad_final_cell, grad_final_output;
  float *error[2], *gates, *cell, *reading;
  float* grad_query;
  WrittenGradients grad[2];
  float *grad_initial[2], *grad_initial_cell, *grad_initial_output;
};

struct BackwardRow {
  float query, key, strength, error, reading, grad_y;
  float main, forget, output, cell, previous_cell;
};

// c_{t-1} as row t saw it.
__device__ inline float previous_cell(const BackwardArguments& a, const Place& at, int t) {
  const int V = a.sizes.values;
  if (at.is_first(a.is_first, t)) return 0.f;
  return t == 0 ? load_vector(a.initial_cell, at, V) : at.load(a.cell, t - 1, V);
}

// The whole unroll for one matrix: W_gate or R_gate. If the W come after the R, the R pass leaves
// the full gradient of y in the gradient of v until each number's own lane overwrites it.
__device__ inline void walk_back(const BackwardArguments& a, int kind, int gate, float* stage,
                                 float* slots, float* parts) {
  const bool after = !TOGETHER && kind == SLOW;
  const Place at(a.sizes), mine = place_of_gate(at, gate);
  const int V = a.sizes.values, K = kind == SLOW ? a.sizes.keys : V;
  const View &keys = a.written[kind].key[gate], &strengths = a.written[kind].strength[gate];
  const WrittenGradients& grad = a.grad[kind];
  float *q = slots, *k = q + SLOT, *u = k + SLOT, *g = u + SLOT, *dv = g + SLOT;
  Rewound memory;
  memory.load_gradient(a.grad_final[kind][gate], at, K, V, stage);
  float grad_output = after ? 0.f : load_vector(a.grad_final_output, at, V);
  float grad_cell = load_vector(a.grad_final_cell, at, V);
  auto load = [&](int t) {
    const float reading = at.load(a.reading, t, V);
    return BackwardRow{kind == SLOW ? at.load(a.query[gate], t, K) : reading,
                       at.load(keys, t, K),
                       at.load_scalar(strengths, t),
                       mine.load(a.error[kind], t, V),
                       reading,
                       after ? mine.load(grad.value, t, V) : at.load(a.grad_y, t, V),
                       place_of_gate(at, MAIN).load(a.gates, t, V),
                       place_of_gate(at, FORGET).load(a.gates, t, V),
                       place_of_gate(at, OUTPUT).load(a.gates, t, V),
                       at.load(a.cell, t, V),
                       previous_cell(a, at, t)};
  };
  for (int last = a.sizes.time - 1, stop; last >= 0; last = stop - 1) {
    const int first = segment_start(a.is_first, at, last);
    clear(memory.weights);
    if (!at.is_first(a.is_first, first))
      load_row(memory.weights, a.initial[kind][gate], at, K, V, stage);
    const float first_error = mine.load(a.error[kind], first, V);
    const Reach reach = rebuild(
        memory.weights, first, last, at, [&](int t) { return at.load(keys, t, K); },
        [&](int t) { return at.load_scalar(strengths, t) * mine.load(a.error[kind], t, V); },
        slots);
    stop = outgrows(reach, first_error) ? last : first;
    const bool forgets = stop == first && at.is_first(a.is_first, first);
    BackwardRow next = load(last);
    for (int t = last; t >= stop; --t) {
      const BackwardRow row = next;
      next = load(t - 1);
      const float grad_y = row.grad_y + grad_output;
      if (!TOGETHER && !after) mine.store(a.grad[SLOW].value, t, V, grad_y);
      grad_cell += grad_y * row.output;
      float grad_sum = grad_cell * (1.f - row.forget);
      if (gate == FORGET) grad_sum *= (row.previous_cell - row.main) * row.forget;
      if (gate == OUTPUT) grad_sum = grad_y * row.cell * row.output * (1.f - row.output);
      grad_cell *= row.forget;
      q[at.lane] = row.query;
      k[at.lane] = row.key;
      u[at.lane] = row.strength * row.error;
      g[at.lane] = grad_sum;
      sync();
      const float grad_query = memory.read_backward(row.query, q, grad_sum, g);
      float* all = parts + (t % 2) * GATES * SLOT;
      if (kind == RECURRENT) all[gate * SLOT + at.lane] = grad_query;
      const float grad_update = memory.update_gradient(k);
      float grad_key = memory.rewind(row.key, row.strength * row.error, u, at);
      const float grad_value = row.strength * grad_update;
      dv[at.lane] = grad_value;
      __syncthreads();
      grad_key += memory.answer_backward(row.key, k, grad_value, dv);
      if (!after)
        grad_output = softmax_backward(
            row.reading, (all[at.lane] + all[SLOT + at.lane]) + all[2 * SLOT + at.lane]);
      if (kind == SLOW) mine.store(a.grad_query, t, K, grad_query);
      mine.store(grad.key, t, K, grad_key);
      mine.store(grad.value, t, V, grad_value);
      mine.store_scalar(grad.strength, t, lane_sum(grad_update * row.error));
      sync();  // before the next row, or the next segment's rebuild, writes the slots
    }
    if (forgets) {
      memory.forget_gradient();
      grad_output = grad_cell = 0.f;
    }
  }
  store_column(a.grad_initial[kind], memory.gradient_column, mine, K, V, stage);
  if (!after && kind == RECURRENT && gate == MAIN)
    store_vector(a.grad_initial_output, grad_output, at, V);
  if (!after && kind == RECURRENT && gate == FORGET)
    store_vector(a.grad_initial_cell, grad_cell, at, V);
}

extern "C" __global__ void __launch_bounds__(HELD * GROUP, 1)
    delta_lstm_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(stages, HELD * STAGE);
  SHARED_FLOATS(all_slots, HELD * REBUILT_TOGETHER * SLOT);
  SHARED_FLOATS(parts, 2 * GATES * SLOT);  // dp of each R_g, to all groups; two sets
  const int m = group_of_thread(), gate = m % GATES;
  float *stage = stages + m * STAGE, *slots = all_slots + m * REBUILT_TOGETHER * SLOT;
  if (TOGETHER) {
    walk_back(a, m / GATES, gate, stage, slots, parts);
  } else {
    walk_back(a, RECURRENT, gate, stage, slots, parts);
    walk_back(a, SLOW, gate, stage, slots, parts);
  }
}
