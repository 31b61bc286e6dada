// The self-referential weight matrix (SRWM), forward and backward (see reference.py; softmax only).
//
// W = W_0 + shift has four blocks of columns m = y, q, k, b (N, N, N and 4 wide). With d = q - k:
//
//     o_m = W_m^T x    e_m = W_m^T d    u_m = b_m e_m    W_m' = W_m + k u_m^T
//
// Backward, t = T-1 .. 0, with G_m the gradient of W_m'; every W is as before row t's write:
//
//     du_m = G_m^T k    dk = sum_m G_m u_m    de_m = b_m du_m    db_m = du_m . e_m
//     W_m = W_m' - k u_m^T    dd = sum_m W_m de_m    G_m += d de_m^T    dq = dd    dk -= dd
//     through the softmaxes and sigmoids: do_q, do_k, do_b; do_y comes from above
//     dx = sum_m W_m do_m    G_m += x do_m^T
//
// Where row t reset, G is the gradient of W_0 alone; the shift before it gets none.
//
// In the forward pass each block of columns has a group of threads; the four groups synchronise
// once per row. In the backward pass they synchronise twice per row, and the strengths' four
// columns have no group: each of the three groups holds and computes them by row, and the first
// group's result is used. So a block at D = 64 has twelve warps, with 168 registers per thread. No
// sum over lanes is inside a branch, because the compiler's code for it spills registers.
#include "rewind.cuh"

constexpr int STRENGTHS = 4;  // one for each block of columns
constexpr int BLOCKS = 4;

struct ForwardArguments {
  Sizes sizes;
  View x, initial_weights;
  Flags is_first;
  View shift;
  float *y, *final_shift;
  float *query, *key, *strength, *error;  // for backward
};

// The columns of block `block`: the first column and the number of columns.
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
  SHARED_FLOATS(shared, 2 * 3 * SLOT);  // exchanged between groups; two sets
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
    const float mapped = softmax(output, mine);
    if (m == 1) q[at.lane] = mapped;
    if (m == 2) k[at.lane] = mapped;
    if (m == 3) strengths[at.lane] = largest_strength(a.sizes) * fast_sigmoid(output);
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
  if (T == 0)  // exact: the sum with W_0 has rounded
    load_column(weights, at_columns(a.shift, columns), at, N, columns.count, stage);
  each_own(a.final_shift, weights, at, columns, N, stage,
           [](float& own, float entry) { own = entry; });
}

struct BackwardArguments {
  Sizes sizes;
  View x, initial_weights;
  Flags is_first;
  View shift, grad_y, grad_final;
  float *query, *key, *strength, *error;
  float *grad_x, *grad_weights, *grad_shift;  // grad_weights [B, H, N, C] is summed over B later
};

struct BackwardRow {
  float x, query, key, strength, error, grad_y;
};

constexpr int WIDE = 3;       // blocks with a group of threads in the backward pass: y, q, k
constexpr int ROW_SLOTS = 9;  // per group; at least REBUILT_TOGETHER

// The strengths' columns of W and of G by row: four numbers per lane; the second part has padding.
struct Strengths {
  float weights[STRENGTHS], gradient[STRENGTHS];

  __device__ float read_backward(float x, const float* g_slot) {
    add_scaled(gradient, x, g_slot);
    return dot(weights, g_slot);
  }
  __device__ float rewind(float k, const float* u_slot) {
    add_scaled(weights, -k, u_slot);
    return dot(gradient, u_slot);
  }
  // As `each_own`.
  template <class Write>
  __device__ void each_own(float* own, const Place& at, int size, Write write) const {
    if (at.lane >= size || part_of_thread() != 0) return;
    float* row = own + (static_cast<long long>(at.block) * size + at.lane) *
                           (3 * size + STRENGTHS) + 3 * size;
#pragma unroll
    for (int n = 0; n < STRENGTHS; ++n) write(row[n], gradient[n]);
  }
};

extern "C" __global__ void __launch_bounds__(WIDE * GROUP, 1)
    self_referential_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(all_slots, WIDE * ROW_SLOTS * SLOT);
  SHARED_FLOATS(stages, WIDE * STAGE);
  SHARED_FLOATS(shared, (3 * WIDE + 1) * SLOT);  // exchanged between groups
  float *key_parts = shared, *difference_parts = key_parts + WIDE * SLOT;
  float *x_parts = difference_parts + WIDE * SLOT, *strength_gradients = x_parts + WIDE * SLOT;
  const int m = group_of_thread();
  float* stage = stages + m * STAGE;
  const Place at(a.sizes);
  float* slots = all_slots + m * ROW_SLOTS * SLOT;
  float *x = slots, *d = x + SLOT, *k = d + SLOT, *u = k + SLOT, *de = u + SLOT;
  float *output_gradients = de + SLOT, *strength_u = output_gradients + SLOT;
  float *strength_de = strength_u + SLOT, *strength_output = strength_de + SLOT;
  const int N = a.sizes.keys, C = 3 * N + STRENGTHS;
  const Columns columns(m, N), last_columns(WIDE, N);
  const bool first_group = m == 0, is_strength = at.lane < STRENGTHS;
  Rewound memory;
  Strengths strengths;
  auto each = [&](float* own, auto write) {
    each_own(own, memory.gradient_column, at, columns, N, stage, write);
    if (first_group) strengths.each_own(own, at, N, write);
  };
  memory.load_gradient(at_columns(a.grad_final, columns), at, N, N, stage);
  load_row(strengths.gradient, at_columns(a.grad_final, last_columns), at, N, STRENGTHS, stage);
  // Each segment's start adds the gradient of W_0 + shift. In the last segment this includes
  // `grad_final`, which concerns only the shift and is subtracted here.
  each(a.grad_weights, [&](float& own, float entry) { own = a.sizes.time ? -entry : 0.f; });
  auto key = [&](int t) { return at.load(a.key, t, N); };
  auto strength = [&](int t, int block) {
    return t >= 0 ? a.strength[at.index(t, STRENGTHS) + block] : 0.f;
  };
  auto error = [&](int t, int block, int count) {
    return at.lane < count && t >= 0 ? a.error[at.index(t, C) + block * N + at.lane] : 0.f;
  };
  auto update = [&](int t) { return strength(t, m) * error(t, m, N); };
  auto strength_error = [&](int t) { return error(t, WIDE, STRENGTHS); };
  auto strength_update = [&](int t) { return strength(t, WIDE) * strength_error(t); };
  auto load = [&](int t) {
    return BackwardRow{at.load(a.x, t, N), at.load(a.query, t, N), key(t), strength(t, m),
                       error(t, m, N), first_group ? at.load(a.grad_y, t, N) : 0.f};
  };
  bool fresh = false;
  for (int last = a.sizes.time - 1, first; last >= 0; last = first - 1) {
    first = segment_start(a.is_first, at, last);
    fresh = at.is_first(a.is_first, first);
    auto start = [&](auto& weights, const Columns& of, int count, auto updated) {
      load_row(weights, at_columns(a.initial_weights, of), at, N, count, stage);
      if (!fresh) add_row(weights, at_columns(a.shift, of), at, N, count, stage);
      rebuild(weights, first, last, at, key, updated, slots);
    };
    start(memory.weights, columns, N, update);
    start(strengths.weights, last_columns, STRENGTHS, strength_update);
    BackwardRow next = load(last);
    for (int t = last; t >= first; --t) {
      const BackwardRow row = next;
      next = load(t - 1);
      const float difference = row.query - row.key;
      x[at.lane] = row.x;
      d[at.lane] = difference;
      k[at.lane] = row.key;
      u[at.lane] = row.strength * row.error;
      strength_u[at.lane] = strength_update(t);
      sync();
      const float grad_update = memory.update_gradient(k);
      const float grad_error = row.strength * grad_update;
      const float sums = dot_across_lanes(strengths.gradient, row.key, at);
      const float grad_strength_update = is_strength ? sums : 0.f;
      float grad_key = memory.rewind(row.key, row.strength * row.error, u, at);
      float narrow = strengths.rewind(row.key, strength_u);
      key_parts[m * SLOT + at.lane] = grad_key + (first_group ? narrow : 0.f);
      de[at.lane] = grad_error;
      strength_de[at.lane] = strength(t, WIDE) * grad_strength_update;
      sync();
      float grad_difference = memory.read_backward(difference, d, grad_error, de);
      narrow = strengths.read_backward(difference, strength_de);
      difference_parts[m * SLOT + at.lane] = grad_difference + (first_group ? narrow : 0.f);
      auto through_sigmoid = [&](int block, float sum) {
        const float s = strength(t, block);
        if (at.lane == 0) strength_gradients[block] = sum * strength_slope(s, a.sizes);
      };
      through_sigmoid(m, lane_sum(grad_update * row.error));
      const float of_strengths = lane_sum(grad_strength_update * strength_error(t));
      if (first_group) through_sigmoid(WIDE, of_strengths);
      __syncthreads();
      grad_difference = grad_key = 0.f;
#pragma unroll
      for (int block = 0; block < WIDE; ++block) {
        grad_difference += difference_parts[block * SLOT + at.lane];
        grad_key += key_parts[block * SLOT + at.lane];
      }
      float grad_output = softmax_backward(m == 1 ? row.query : row.key,
                                           m == 1 ? grad_difference : grad_key - grad_difference);
      if (first_group) grad_output = row.grad_y;
      output_gradients[at.lane] = grad_output;
      strength_output[at.lane] = is_strength ? strength_gradients[at.lane] : 0.f;
      sync();
      const float grad_x = memory.read_backward(row.x, x, grad_output, output_gradients);
      narrow = strengths.read_backward(row.x, strength_output);
      x_parts[m * SLOT + at.lane] = grad_x + (first_group ? narrow : 0.f);
      __syncthreads();
      if (first_group)
        at.store(a.grad_x, t, N,
                 x_parts[at.lane] + x_parts[SLOT + at.lane] + x_parts[2 * SLOT + at.lane]);
    }
    // At a segment's start W is W_0, plus the given shift if the unroll continues an episode.
    each(a.grad_weights, [](float& own, float entry) { own += entry; });
    if (fresh) {
      memory.forget_gradient();
      clear(strengths.gradient);
    }
  }
  each(a.grad_shift, [](float& own, float entry) { own = entry; });
}
