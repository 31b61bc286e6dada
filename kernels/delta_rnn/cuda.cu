// The Delta RNN, versions A and B, forward and backward (see reference.py for the definition).
//
// r_t is the recurrent matrix's query: softmax(y_{t-1}) in version B, y_{t-1} in version A.
// Backward, t = T-1 .. 0, with g the full gradient of y_t (from above, and from r_{t+1}):
//
//     version A:  g = y * (g - y . g)                    through the softmax of the sum
//     both matrices, each with its own q or r, key, error and strength, by rewind.cuh
//     gradient of y_{t-1}:  dr in version A, r * (dr - r . dr) in B; zero where row t reset
#include "rewind.cuh"

enum { VERSION_A, VERSION_B };

struct ForwardArguments {
  Sizes sizes;  // option: 0 for version A, 1 for version B
  View q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;
  Flags is_first;
  View initial, recurrent_initial, initial_output;
  float *y, *final, *recurrent_final, *final_output;
  float *error, *recurrent_error, *reading;  // for backward; reading: y_t in A, r_t in B
};

struct ForwardRow {
  float q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    delta_rnn_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 8 * SLOT);
  const Place at(a.sizes);
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  const bool version_a = a.sizes.option == VERSION_A;
  float weights[ENTRIES], recurrent[ENTRIES];
  load_column(weights, a.initial, at, K, V, stage);
  load_column(recurrent, a.recurrent_initial, at, V, V, stage);
  float y = load_vector(a.initial_output, at, V);
  auto load = [&](int t) {
    return ForwardRow{at.load(a.q, t, K), at.load(a.k, t, K), at.load(a.v, t, V),
                      at.load_scalar(a.beta, t), at.load(a.recurrent_k, t, V),
                      at.load(a.recurrent_v, t, V), at.load_scalar(a.recurrent_beta, t),
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
    const float query = version_a ? y : softmax(y, at.lane < V);
    float *k = slots + (t % 2) * 4 * SLOT, *q = k + SLOT;  // two sets: one barrier per row
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
    if (version_a) y = softmax(y, at.lane < V);
    add_scaled(weights, update, k);
    add_scaled(recurrent, recurrent_update, recurrent_k);
    at.store(a.y, t, V, y);
    at.store(a.error, t, V, error);
    at.store(a.recurrent_error, t, V, recurrent_error);
    at.store(a.reading, t, V, version_a ? y : query);
  }
  store_column(a.final, weights, at, K, V, stage);
  store_column(a.recurrent_final, recurrent, at, V, V, stage);
  store_vector(a.final_output, y, at, V);
}

// [0] is W's, [1] is R's: two groups of threads, one matrix each.
struct Written {
  View key, value, strength;
};
struct WrittenGradients {
  float *key, *value, *strength;
};

struct BackwardArguments {
  Sizes sizes;
  View query;
  Written written[2];
  Flags is_first;
  View initial[2], initial_output, grad_y, grad_final[2], grad_final_output;
  float *error[2], *reading;
  float* grad_query;
  WrittenGradients grad[2];
  float *grad_initial[2], *grad_initial_output;
};

struct BackwardRow {
  float query, key, strength, error, grad_y, output;
};

// r_t from the tensors that the forward pass saved.
__device__ inline float recurrent_query(const BackwardArguments& a, const Place& at, int t, int V) {
  if (a.sizes.option != VERSION_A) return at.load(a.reading, t, V);
  if (at.is_first(a.is_first, t)) return 0.f;
  return t == 0 ? load_vector(a.initial_output, at, V) : at.load(a.reading, t - 1, V);
}

extern "C" __global__ void __launch_bounds__(2 * GROUP, 1)
    delta_rnn_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(all_slots, 2 * REBUILT_TOGETHER * SLOT);
  SHARED_FLOATS(stages, 2 * STAGE);
  SHARED_FLOATS(gradients, 2 * SLOT);  // of y_t, from R's group to both groups; two sets
  const int m = group_of_thread();
  const bool version_a = a.sizes.option == VERSION_A;
  float* stage = stages + m * STAGE;
  const Place at(a.sizes);
  const int V = a.sizes.values, K = m == 0 ? a.sizes.keys : V;
  const Written& of = a.written[m];
  float* slots = all_slots + m * REBUILT_TOGETHER * SLOT;
  float *q = slots, *k = q + SLOT, *u = k + SLOT, *dv = u + SLOT;
  Rewound memory;
  memory.load_gradient(a.grad_final[m], at, K, V, stage);
  float grad_output = load_vector(a.grad_final_output, at, V);
  auto load = [&](int t) {
    return BackwardRow{m == 0 ? at.load(a.query, t, K) : recurrent_query(a, at, t, V),
                       at.load(of.key, t, K), at.load_scalar(of.strength, t),
                       at.load(a.error[m], t, V), at.load(a.grad_y, t, V),
                       version_a ? at.load(a.reading, t, V) : 0.f};
  };
  for (int last = a.sizes.time - 1, stop; last >= 0; last = stop - 1) {
    const int first = segment_start(a.is_first, at, last);
    clear(memory.weights);
    if (!at.is_first(a.is_first, first))
      load_row(memory.weights, a.initial[m], at, K, V, stage);
    const float first_error = at.load(a.error[m], first, V);
    const Reach reach = rebuild(
        memory.weights, first, last, at, [&](int t) { return at.load(of.key, t, K); },
        [&](int t) { return at.load_scalar(of.strength, t) * at.load(a.error[m], t, V); },
        slots);
    stop = outgrows(reach, first_error) ? last : first;
    const bool forgets = stop == first && at.is_first(a.is_first, first);
    BackwardRow next = load(last);
    for (int t = last; t >= stop; --t) {
      const BackwardRow row = next;
      next = load(t - 1);
      float* g = gradients + (t % 2) * SLOT;
      q[at.lane] = row.query;
      k[at.lane] = row.key;
      u[at.lane] = row.strength * row.error;
      if (m == 1) {
        const float above = row.grad_y + grad_output;
        g[at.lane] = version_a ? softmax_backward(row.output, above) : above;
      }
      __syncthreads();
      const float grad_query = memory.read_backward(row.query, q, g[at.lane], g);
      const float grad_update = memory.update_gradient(k);
      float grad_key = memory.rewind(row.key, row.strength * row.error, u, at);
      const float grad_value = row.strength * grad_update;
      dv[at.lane] = grad_value;
      sync();
      grad_key += memory.answer_backward(row.key, k, grad_value, dv);
      if (m == 1)
        grad_output = version_a ? grad_query : softmax_backward(row.query, grad_query);
      if (m == 0) at.store(a.grad_query, t, K, grad_query);
      at.store(a.grad[m].key, t, K, grad_key);
      at.store(a.grad[m].value, t, V, grad_value);
      at.store_scalar(a.grad[m].strength, t, lane_sum(grad_update * row.error));
      sync();  // before the next row, or the next segment's rebuild, writes the slots
    }
    if (forgets) {
      memory.forget_gradient();
      grad_output = 0.f;
    }
  }
  store_column(a.grad_initial[m], memory.gradient_column, at, K, V, stage);
  if (m == 1) store_vector(a.grad_initial_output, grad_output, at, V);
}
