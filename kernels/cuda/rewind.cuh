// The backward pass of a matrix written by the delta rule, for recurrences whose gradient needs W_t
// in reverse order.
//
//     e_t = v_t - W_{t-1}^T k_t,   u_t = beta_t e_t,   W_t = W_{t-1} + k_t u_t^T,   y_t = W_t^T q_t
//
// With G the gradient of W_t, including everything after step t, and g the gradient of y_t:
//
//     dq = W_t g                    G += q g^T               reading
//     du = G^T k,   dk = G u        W_{t-1} = W_t - k u^T    writing: what u and k did to W_t
//     dv = beta du, dbeta = du . e                           u = beta (v - W_{t-1}^T k)
//     dk -= W_{t-1} dv              G -= k dv^T
//
// W is rewound by subtracting the stored updates. No W is stored, and nothing is inverted (which
// would be unstable). A reset at `is_first[t]` loses W_{t-1}, so the backward pass handles the
// unroll segment by segment. It sums each segment's updates once, in the forward pass's order, to
// get the W of its last row, and then rewinds. Every row is summed once, whatever the resets.
//
// If W grows, subtraction leaves the rounding errors of the late, large W in the early, small W.
// This cannot happen with keys that sum to one. With other keys, a segment that `outgrows` its
// beginning is rewound by one row at a time, and the earlier updates are summed again until they
// are small enough to be rewound. This takes as many sums as there are row pairs, but no memory.
//
// W is held by row. Up to D = 32, G is held both by row and by column: two cheap rank-one updates
// replace D sums over lanes. At D = 64 registers are scarce: G is held by column only, and G u is
// computed with these sums.
#pragma once
#include "matrix.cuh"

// First row of the segment that ends at row `last`; 32 flags are checked at once.
__device__ inline int segment_start(const Flags& flags, const Place& at, int last) {
  const int lane = threadIdx.x % WARP;
  for (int base = last; base >= 0; base -= WARP) {
    const unsigned found = __ballot_sync(ALL_LANES, at.is_first(flags, base - lane));
    if (found) return base - (__ffs(found) - 1);
  }
  return 0;
}

// The largest magnitudes of this lane's entries of the keys and the updates of some rows.
struct Reach {
  float key, update;
};

// weights += this lane's row of the sum over rows first..last of key_t update_t^T. `key(t)` and
// `update(t)` return this lane's entries. Eight rows are loaded together, to wait for memory once.
constexpr int REBUILT_TOGETHER = 8;

template <int N, class Key, class Update>
__device__ inline Reach rebuild(float (&weights)[N], int first, int last, const Place& at, Key key,
                                Update update, float* slots) {
  Reach reach = {0.f, 0.f};
  for (int t = first; t <= last; t += REBUILT_TOGETHER) {
    float keys[REBUILT_TOGETHER];
#pragma unroll
    for (int n = 0; n < REBUILT_TOGETHER; ++n) {
      const bool inside = t + n <= last;
      keys[n] = inside ? key(t + n) : 0.f;
      const float mine = inside ? update(t + n) : 0.f;
      slots[n * SLOT + at.lane] = mine;
      reach.key = fmaxf(reach.key, fabsf(keys[n]));
      reach.update = fmaxf(reach.update, fabsf(mine));
    }
    sync();
#pragma unroll
    for (int n = 0; n < REBUILT_TOGETHER; ++n) add_scaled(weights, keys[n], slots + n * SLOT);
    sync();
  }
  return reach;
}

// Whether a segment's writes are so much larger than its first error, which includes the first
// value, that rewinding may lose the first W. No write exceeds the largest key times the largest
// update. At this limit the error is about 1e-5 of the beginning; with keys that sum to one, writes
// are a few times as large. (The first W itself is not checked: a Delta LSTM lacks the registers.)
constexpr float MOST_GROWTH = 32.f;

__device__ inline bool outgrows(const Reach& reach, float first_error) {
  const float beginning = lane_max(fabsf(first_error));
  return !(lane_max(reach.key) * lane_max(reach.update) <= MOST_GROWTH * beginning);
}

// Entry `lane` of M x, for a matrix held by column; x_j is lane j's number. As many entries as a
// warp has lanes are summed together. In each exchange a thread gives away half of its sums and
// adds those it receives to the other half, until one sum is left.
template <int N>
__device__ inline float dot_across_lanes(const float (&column)[N], float x, const Place& at) {
  constexpr int WARPS = GROUP / WARP, MOST = WARP / PARTS < N ? WARP / PARTS : N;
  SHARED_FLOATS(sums, MOST_GROUPS * WARPS * SLOT);
  float* mine = sums + group_of_thread() * WARPS * SLOT;
#pragma unroll
  for (int start = 0; start < N; start += MOST) {
    float parts[MOST];
    int kept = start;
#pragma unroll
    for (int n = 0; n < MOST; ++n) parts[n] = column[start + n] * x;
#pragma unroll
    for (int left = MOST / 2; left; left /= 2) {
      const int offset = left * PARTS;
      const bool upper = threadIdx.x & offset;
      kept += upper ? left : 0;
#pragma unroll
      for (int n = 0; n < MOST / 2; ++n) {
        if (n >= left) continue;
        const float given = upper ? parts[n] : parts[n + left];
        const float mine = upper ? parts[n + left] : parts[n];
        parts[n] = mine + __shfl_xor_sync(ALL_LANES, given, offset);
      }
    }
#pragma unroll
    for (int offset = MOST * PARTS; offset < WARP; offset *= 2)
      parts[0] += __shfl_xor_sync(ALL_LANES, parts[0], offset);
    mine[threadIdx.x % GROUP / WARP * SLOT + position(kept)] = parts[0];
  }
  sync();
  float sum = 0.f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) sum += mine[warp * SLOT + at.lane];
  sync();
  return sum;
}

// W by row, G by column (and by row), and the four moves above. A vector comes as this lane's entry
// and as the slot that holds all entries.
struct Rewound {
  static constexpr bool BY_ROW = GROUP == WARP;
  float weights[ENTRIES], gradient_row[ENTRIES], gradient_column[ENTRIES];

  __device__ void load_gradient(const View& view, const Place& at, int rows, int columns,
                                float* stage) {
    if (BY_ROW) load_row(gradient_row, view, at, rows, columns, stage);
    load_column(gradient_column, view, at, rows, columns, stage);
  }
  __device__ void forget_gradient() {
    if (BY_ROW) clear(gradient_row);
    clear(gradient_column);
  }
  __device__ void add_outer(float row, const float* rows, float column, const float* columns) {
    if (BY_ROW) add_scaled(gradient_row, row, columns);
    add_scaled(gradient_column, column, rows);
  }
  __device__ float read_backward(float q, const float* q_slot, float g, const float* g_slot) {
    add_outer(q, q_slot, g, g_slot);
    return dot(weights, g_slot);
  }
  __device__ float update_gradient(const float* k_slot) const {
    return dot(gradient_column, k_slot);
  }
  // Returns the first part of dk and rewinds W to W_{t-1}.
  __device__ float rewind(float k, float u, const float* u_slot, const Place& at) {
    add_scaled(weights, -k, u_slot);
    return BY_ROW ? dot(gradient_row, u_slot) : dot_across_lanes(gradient_column, u, at);
  }
  // Returns the second part of dk.
  __device__ float answer_backward(float k, const float* k_slot, float dv, const float* dv_slot) {
    add_outer(-k, k_slot, -dv, dv_slot);
    return -dot(weights, dv_slot);
  }
};
