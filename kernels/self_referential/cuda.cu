// The self-referential weight matrix (SRWM), forward and backward (see reference.py; softmax only).
//
// W = W_0 + shift has four blocks of columns m = y, q, k, b (N, N, N and 4 wide). With d = q - k:
//
//     o_m = W_m^T x    e_m = W_m^T d    u_m = b_m e_m    W_m' = W_m + k u_m^T
//
// Backward, t = T-1 .. 0, G_m the gradient of W_m'; every W is the one before row t's write:
//
//     du_m = G_m^T k    dk = sum_m G_m u_m    de_m = b_m du_m    db_m = du_m . e_m
//     W_m = W_m' - k u_m^T    dd = sum_m W_m de_m    G_m += d de_m^T    dq = dd    dk -= dd
//     through the softmaxes and sigmoids: do_q, do_k, do_b; do_y comes from above
//     dx = sum_m W_m do_m    G_m += x do_m^T
//
// Where row t forgot, G is the gradient of W_0 alone; the shift before it gets none. Each block of
// columns has a group of threads; the four meet once a row in the forward, twice in the backward.
#include "rewind.cuh"

constexpr int STRENGTHS = 4;  // one for each block of columns
constexpr int BLOCKS = 4;

struct ForwardArguments {
  Sizes sizes;
  View x, initial_weights;
  Flags is_first;
  View shift;
  float *y, *final_shift;
  float *query, *key, *strength, *error;  // for the backward
};

// Columns of block `block`: where they start, and how many there are.
struct Columns {
  int start, count;
  __device__ Columns(int block, int size)
      : start(block * size), count(block < 3 ? size : STRENGTHS) {}
};

__device__ inline View at_columns(View view, Columns columns) {
  view.data += columns.start * view.strides[3];
  return view;
}

// Calls `write(entry of own, number)` for this thread's numbers of a block of our own [B, H, N, C].
template <class Write>
__device__ inline void each_own(float* own, const float (&entries)[ENTRIES], const Place& at,
                                const Columns& columns, int size, float* stage, Write write) {
  const int all = 3 * size + STRENGTHS;
  float* column =
      own + static_cast<long long>(at.block) * size * all + columns.start + at.lane;
  each_entry(entries, at, stage, [&](int row, float entry) {
    if (row < size && at.lane < columns.count) write(column[row * all], entry);
  });
}

extern "C" __global__ void __launch_bounds__(BLOCKS * GROUP, 1)
    self_referential_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(all_slots, BLOCKS * 2 * SLOT);
  SHARED_FLOATS(stages, BLOCKS * STAGE);
  SHARED_FLOATS(shared, 2 * 3 * SLOT);  // what the groups tell each other, in two sets
  const int m = group_of_thread();
  float* stage = stages + m * STAGE;
  const Place at(a.sizes);
  float *x = all_slots + m * 2 * SLOT, *d = x + SLOT;
  const int T = a.sizes.time, N = a.sizes.keys, C = 3 * N + STRENGTHS;
  const Columns columns(m, N);
  const bool mine = at.lane < columns.count;
  const View initial = at_columns(a.initial_weights, columns);
  float weights[ENTRIES];
  load_column(weights, initial, at, N, columns.count, stage);
  add_column(weights, at_columns(a.shift, columns), at, N, columns.count, stage);
  float next = at.load(a.x, 0, N);
  bool next_is_first = at.is_first(a.is_first, 0);
  for (int t = 0; t < T; ++t) {
    if (next_is_first) load_column(weights, initial, at, N, columns.count, stage);
    x[at.lane] = next;
    sync();
    next = at.load(a.x, t + 1, N);
    next_is_first = at.is_first(a.is_first, t + 1);
    const float output = dot(weights, x);
    float *q = shared + (t % 2) * 3 * SLOT, *k = q + SLOT, *strengths = k + SLOT;
    if (m == 0) at.store(a.y, t, N, output);
    if (m == 1) q[at.lane] = softmax(output, mine);
    if (m == 2) k[at.lane] = softmax(output, mine);
    if (m == 3) strengths[at.lane] = fast_sigmoid(output);
    __syncthreads();
    d[at.lane] = q[at.lane] - k[at.lane];
    sync();
    const float error = dot(weights, d);
    add_scaled(weights, strengths[m] * error, k);
    if (mine && a.error) a.error[at.index(t, C) + columns.start + at.lane] = error;
    if (m == 1) at.store(a.query, t, N, q[at.lane]);
    if (m == 2) at.store(a.key, t, N, k[at.lane]);
    if (m == 3) at.store(a.strength, t, STRENGTHS, strengths[at.lane]);
  }
  float fresh[ENTRIES];
  load_column(fresh, initial, at, N, columns.count, stage);
#pragma unroll
  for (int n = 0; n < ENTRIES; ++n) weights[n] -= fresh[n];
  each_own(a.final_shift, weights, at, columns, N, stage,
           [](float& own, float entry) { own = entry; });
}

struct BackwardArguments {
  Sizes sizes;
  View x, initial_weights;
  Flags is_first;
  View shift, grad_y, grad_final;
  float *query, *key, *strength, *error;
  float *grad_x, *grad_weights, *grad_shift;  // grad_weights [B, H, N, C] is summed over B after
};

struct BackwardRow {
  float x, query, key, strength, error, grad_y;
};

extern "C" __global__ void __launch_bounds__(BLOCKS * GROUP, 1)
    self_referential_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(all_slots, BLOCKS * REBUILT_TOGETHER * SLOT);
  SHARED_FLOATS(stages, BLOCKS * STAGE);
  SHARED_FLOATS(shared, 4 * BLOCKS * SLOT);  // what the groups tell each other
  float *key_parts = shared, *difference_parts = key_parts + BLOCKS * SLOT;
  float *x_parts = difference_parts + BLOCKS * SLOT, *strength_gradients = x_parts + BLOCKS * SLOT;
  const int m = group_of_thread();
  float* stage = stages + m * STAGE;
  const Place at(a.sizes);
  float* slots = all_slots + m * REBUILT_TOGETHER * SLOT;
  float *x = slots, *d = x + SLOT, *k = d + SLOT, *u = k + SLOT, *de = u + SLOT;
  float* output_gradients = de + SLOT;
  const int N = a.sizes.keys, C = 3 * N + STRENGTHS;
  const Columns columns(m, N);
  const bool mine = at.lane < columns.count;
  Rewound memory;
  memory.load_gradient(at_columns(a.grad_final, columns), at, N, columns.count, stage);
  // What is added at each segment's start is the gradient of W_0 + shift; in the last segment it
  // counts `grad_final`, which concerns the shift alone.
  each_own(a.grad_weights, memory.gradient_column, at, columns, N, stage,
           [&](float& own, float entry) { own = a.sizes.time ? -entry : 0.f; });
  auto key = [&](int t) { return at.load(a.key, t, N); };
  auto strength = [&](int t) {
    return t >= 0 ? a.strength[at.index(t, STRENGTHS) + m] : 0.f;
  };
  auto error = [&](int t) {
    return mine && t >= 0 ? a.error[at.index(t, C) + columns.start + at.lane] : 0.f;
  };
  auto load = [&](int t) {
    return BackwardRow{at.load(a.x, t, N), at.load(a.query, t, N), key(t), strength(t), error(t),
                       m == 0 ? at.load(a.grad_y, t, N) : 0.f};
  };
  bool fresh = false;
  for (int last = a.sizes.time - 1, first; last >= 0; last = first - 1) {
    first = segment_start(a.is_first, at, last);
    fresh = at.is_first(a.is_first, first);
    load_row(memory.weights, at_columns(a.initial_weights, columns), at, N, columns.count, stage);
    if (!fresh)
      add_row(memory.weights, at_columns(a.shift, columns), at, N, columns.count, stage);
    rebuild(
        memory.weights, first, last, at, key,
        [&](int t) { return strength(t) * error(t); }, slots);
    BackwardRow next = load(last);
    for (int t = last; t >= first; --t) {
      const BackwardRow row = next;
      next = load(t - 1);
      const float difference = row.query - row.key;
      x[at.lane] = row.x;
      d[at.lane] = difference;
      k[at.lane] = row.key;
      u[at.lane] = row.strength * row.error;
      sync();
      const float grad_update = memory.update_gradient(k);
      const float grad_error = row.strength * grad_update;
      key_parts[m * SLOT + at.lane] = memory.rewind(row.key, row.strength * row.error, u, at);
      de[at.lane] = grad_error;
      sync();
      difference_parts[m * SLOT + at.lane] =
          memory.read_backward(difference, d, grad_error, de);
      const float grad_strength = lane_sum(grad_update * row.error);
      if (at.lane == 0)
        strength_gradients[m] = grad_strength * row.strength * (1.f - row.strength);
      __syncthreads();
      float grad_difference = 0.f, grad_key = 0.f;
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block) {
        grad_difference += difference_parts[block * SLOT + at.lane];
        grad_key += key_parts[block * SLOT + at.lane];
      }
      float grad_output = row.grad_y;
      if (m == 1) grad_output = softmax_backward(row.query, grad_difference);
      if (m == 2) grad_output = softmax_backward(row.key, grad_key - grad_difference);
      if (m == 3) grad_output = mine ? strength_gradients[at.lane] : 0.f;
      output_gradients[at.lane] = grad_output;
      sync();
      x_parts[m * SLOT + at.lane] = memory.read_backward(row.x, x, grad_output, output_gradients);
      __syncthreads();
      if (m == 0)
        at.store(a.grad_x, t, N,
                 (x_parts[at.lane] + x_parts[SLOT + at.lane]) +
                     (x_parts[2 * SLOT + at.lane] + x_parts[3 * SLOT + at.lane]));
    }
    // At a segment's start W is W_0, plus the given shift in an unroll that goes on.
    each_own(a.grad_weights, memory.gradient_column, at, columns, N, stage,
             [](float& own, float entry) { own += entry; });
    if (fresh) memory.forget_gradient();
  }
  each_own(a.grad_shift, memory.gradient_column, at, columns, N, stage,
           [](float& own, float entry) { own = entry; });
}
