// The recurrent delta rule (RDN), forward and backward (see reference.py for the definition;
// the feature maps softmax and unit).
//
// Backward, t = T-1 .. 0, with g the full gradient of y_t (from above, and from h_{t+1}); W and G
// as in rewind.cuh. With q^x, k^x, b^x the inputs of the feature map and the strength map:
//
//     dq, dk, dv, du from g by rewind.cuh       db^x = (du . e) beta (1 - beta / largest)
//     dq^x = q * (dq - q . dq)                  dk^x = k * (dk - k . dk)             by softmax
//     dq^x = (dq - q (q . dq)) / |q^x|          dk^x = (dk - k (k . dk)) / |k^x|     by unit
//     dh = R_q dq^x + R_k dk^x + R_v dv + r_beta db^x
//     gradient of y_{t-1} through h = tanh(y_{t-1}):  dh * (1 - h^2);  zero where row t reset
//
// The weight gradients are sums over rows of h d^T: one matrix product each, after the kernel.
#include "rewind.cuh"

struct ForwardArguments {
  Sizes sizes;  // options: the indices of the feature map and the strength map
  View q, k, v, beta, query_weights, key_weights, value_weights, strength_weights;
  Flags is_first;
  View initial, initial_output;
  float *y, *final, *final_output;
  float *query, *key, *error, *strength, *hidden, *query_scale, *key_scale;  // for backward
};

struct ForwardRow {
  float q, k, v, beta;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    recurrent_delta_rule_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, 3 * SLOT);
  float *h = slots, *k = h + SLOT, *q = k + SLOT;
  const Place at(a.sizes);
  const int T = a.sizes.time, K = a.sizes.keys, V = a.sizes.values;
  float weights[ENTRIES], to_query[ENTRIES], to_key[ENTRIES], to_value[ENTRIES];
  load_column(weights, a.initial, at, K, V, stage);
  load_column(to_query, a.query_weights, at, V, K, stage);
  load_column(to_key, a.key_weights, at, V, K, stage);
  load_column(to_value, a.value_weights, at, V, V, stage);
  const float to_strength = load_vector(a.strength_weights, at, V);
  const float largest = largest_strength(a.sizes);
  const bool is_unit = a.sizes.option == UNIT;
  float y = load_vector(a.initial_output, at, V);
  auto load = [&](int t) {
    return ForwardRow{at.load(a.q, t, K), at.load(a.k, t, K), at.load(a.v, t, V),
                      at.load_scalar(a.beta, t), at.is_first(a.is_first, t)};
  };
  ForwardRow next = load(0);
  for (int t = 0; t < T; ++t) {
    const ForwardRow row = next;
    next = load(t + 1);
    if (row.is_first) {
      clear(weights);
      y = 0.f;
    }
    const float hidden = fast_tanh(y);
    h[at.lane] = hidden;
    sync();
    const float strength = largest * fast_sigmoid(row.beta + lane_sum(to_strength * hidden));
    float query = row.q + dot(to_query, h), key = row.k + dot(to_key, h);
    if (is_unit) {
      const Direction of_query(query), of_key(key);
      query = of_query.entry;
      key = of_key.entry;
      at.store_scalar(a.query_scale, t, of_query.scale);
      at.store_scalar(a.key_scale, t, of_key.scale);
    } else {
      query = softmax(query, at.lane < K);
      key = softmax(key, at.lane < K);
    }
    q[at.lane] = query;
    k[at.lane] = key;
    const float value = row.v + dot(to_value, h);
    sync();
    const float error = value - dot(weights, k);
    const float update = strength * error;
    y = dot(weights, q) + update * dot_slots(k, q);
    add_scaled(weights, update, k);
    at.store(a.y, t, V, y);
    at.store(a.query, t, K, query);
    at.store(a.key, t, K, key);
    at.store(a.error, t, V, error);
    at.store(a.hidden, t, V, hidden);
    at.store_scalar(a.strength, t, strength);
  }
  store_column(a.final, weights, at, K, V, stage);
  store_vector(a.final_output, y, at, V);
}

struct BackwardArguments {
  Sizes sizes;
  View q, k, v, beta, query_weights, key_weights, value_weights, strength_weights;
  Flags is_first;
  View initial, initial_output, grad_y, grad_final, grad_final_output;
  float *query, *key, *error, *strength, *hidden, *query_scale, *key_scale;
  float *grad_q, *grad_k, *grad_v, *grad_beta, *grad_initial, *grad_initial_output;
};

struct BackwardRow {
  float query, key, error, strength, grad_y;
};

extern "C" __global__ void __launch_bounds__(GROUP, 1)
    recurrent_delta_rule_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(stage, STAGE);
  SHARED_FLOATS(slots, REBUILT_TOGETHER * SLOT);
  SHARED_FLOATS(value_rows, D * PADDED_ROW);  // R_v, which does not fit in registers
  float *q = slots, *k = q + SLOT, *u = k + SLOT, *g = u + SLOT;
  float *dv = g + SLOT, *dq = dv + SLOT, *dk = dq + SLOT;
  const Place at(a.sizes);
  const int K = a.sizes.keys, V = a.sizes.values;
  const bool is_unit = a.sizes.option == UNIT;
  Rewound memory;
  float to_query[ENTRIES], to_key[ENTRIES];  // by row: lane i holds the weights of h_i
  memory.load_gradient(a.grad_final, at, K, V, stage);
  load_row(to_query, a.query_weights, at, V, K, stage);
  load_row(to_key, a.key_weights, at, V, K, stage);
  for (int first = 0; first < D; first += TILE)
    stage_rows(value_rows + first * PADDED_ROW, first, a.value_weights, at, V, V);
  const float* to_value = value_rows + at.lane % D * PADDED_ROW;
  const float to_strength = load_vector(a.strength_weights, at, V);
  float grad_output = load_vector(a.grad_final_output, at, V);
  auto key = [&](int t) { return at.load(a.key, t, K); };
  auto update = [&](int t) {
    return at.load_scalar(a.strength, t) * at.load(a.error, t, V);
  };
  auto load = [&](int t) {
    return BackwardRow{at.load(a.query, t, K), key(t), at.load(a.error, t, V),
                       at.load_scalar(a.strength, t), at.load(a.grad_y, t, V)};
  };
  for (int last = a.sizes.time - 1, first; last >= 0; last = first - 1) {
    first = segment_start(a.is_first, at, last);
    const bool fresh = at.is_first(a.is_first, first);
    clear(memory.weights);
    if (!fresh) load_row(memory.weights, a.initial, at, K, V, stage);
    rebuild(memory.weights, first, last, at, key, update, slots);
    BackwardRow next = load(last);
    for (int t = last; t >= first; --t) {
      const BackwardRow row = next;
      next = load(t - 1);
      const float hidden = at.load(a.hidden, t, V);  // needed last; loaded late to save a register
      const float grad_y = row.grad_y + grad_output;
      q[at.lane] = row.query;
      k[at.lane] = row.key;
      u[at.lane] = row.strength * row.error;
      g[at.lane] = grad_y;
      sync();
      float grad_query = memory.read_backward(row.query, q, grad_y, g);
      const float grad_update = memory.update_gradient(k);
      float grad_key = memory.rewind(row.key, row.strength * row.error, u, at);
      const float grad_value = row.strength * grad_update;
      dv[at.lane] = grad_value;
      sync();
      const float through_value = at.lane < D ? dot_slots(to_value, dv) : 0.f;
      grad_key += memory.answer_backward(row.key, k, grad_value, dv);
      const float query_scale = is_unit ? at.load_scalar(a.query_scale, t) : 0.f;
      const float key_scale = is_unit ? at.load_scalar(a.key_scale, t) : 0.f;
      grad_query = map_backward(row.query, query_scale, is_unit, grad_query);
      grad_key = map_backward(row.key, key_scale, is_unit, grad_key);
      const float grad_beta =
          lane_sum(grad_update * row.error) * strength_slope(row.strength, a.sizes);
      dq[at.lane] = grad_query;
      dk[at.lane] = grad_key;
      sync();
      const float grad_hidden =
          dot(to_query, dq) + dot(to_key, dk) + through_value + to_strength * grad_beta;
      grad_output = grad_hidden * (1.f - hidden * hidden);
      at.store(a.grad_q, t, K, grad_query);
      at.store(a.grad_k, t, K, grad_key);
      at.store(a.grad_v, t, V, grad_value);
      at.store_scalar(a.grad_beta, t, grad_beta);
    }
    sync();  // the next segment's rebuild reuses the slots
    if (fresh) {
      memory.forget_gradient();
      grad_output = 0.f;
    }
  }
  store_column(a.grad_initial, memory.gradient_column, at, K, V, stage);
  store_vector(a.grad_initial_output, grad_output, at, V);
}
