// The backward of a matrix written by the delta rule, for recurrences whose gradient needs W_t
// in reverse.
//
//     e_t = v_t - W_{t-1}^T k_t,   u_t = beta_t e_t,   W_t = W_{t-1} + k_t u_t^T,   y_t = W_t^T q_t
//
// With G the gradient of W_t, summed over everything that happens after t, and g that of y_t:
//
//     dq = W_t g                    G += q g^T               reading
//     du = G^T k,   dk = G u        W_{t-1} = W_t - k u^T    writing: what u and k did to W_t
//     dv = beta du, dbeta = du . e                           u = beta (v - W_{t-1}^T k)
//     dk -= W_{t-1} dv              G -= k dv^T
//
// W is rewound by subtracting the stored updates: no W is stored, and nothing is inverted (which is
// unstable). A reset at `is_first[t]` loses W_{t-1}, so the backward pass goes through the unroll
// segment by segment: it sums each segment's updates once, in the forward pass's order, to get the W
// of its last row, and then rewinds. Every row is summed once, for any resets.
//
// If W grows, subtraction leaves the rounding errors of the late, large W in the early, small one.
// This cannot happen with keys that sum to one. For recurrences with other keys, a segment that
// `outgrows` its beginning is rewound by a single row. Then the updates of the rows before are summed
// anew, until they are small enough to be rewound. This takes as many sums as there are pairs of rows,
// but no memory, which a running kernel cannot allocate.
//
// W is held by row. So is G up to D = 32, and by column too: two cheap rank-one updates replace D
// sums over lanes. At D = 64 registers are dear: G is held by column alone, and G u is such sums.
#pragma once
#include "matrix.cuh"

// First row of the segment that ends at row `last`; 32 flags are looked at together.
__device__ inline int segment_start(const Flags& flags, const Place& at, int last) {
  const int lane = threadIdx.x % WARP;
  for (int base = last; base >= 0; base -= WARP) {
    const unsigned found = __ballot_sync(ALL_LANES, at.is_first(flags, base - lane));
    if (found) return base - (__ffs(found) - 1);
  }
  return 0;
}

// The largest that this lane had of the keys and of the updates of some rows.
struct Reach {
  float key, update;
};

// weights += sum over rows first..last of key_t update_t^T, this lane's row of it. `key(t)` and
// `update(t)` give this lane's entries; eight rows are loaded together, to wait for memory once.
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

// Whether a segment's writes are so much larger than its first error, in which the first value is, that
// rewinding may lose the first W. No write is larger than the largest key times the largest update.
// Writes that large leave some 1e-5 of the beginning; with keys that sum to one they are a few times
// as large. (The first W itself is not looked at: its largest entry cost a Delta LSTM's registers.)
constexpr float MOST_GROWTH = 32.f;

__device__ inline bool outgrows(const Reach& reach, float first_error) {
  const float beginning = lane_max(fabsf(first_error));
  return !(lane_max(reach.key) * lane_max(reach.update) <= MOST_GROWTH * beginning);
}

// Entry `lane` of M x, of a matrix held by column; x_j is lane j's number. As many entries as a warp
// has lanes are summed together: in each exchange a thread gives away half of its sums and adds to
// the other half what it is given, until it has one.
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
  // The first part of dk; leaves W_{t-1} behind.
  __device__ float rewind(float k, float u, const float* u_slot, const Place& at) {
    add_scaled(weights, -k, u_slot);
    return BY_ROW ? dot(gradient_row, u_slot) : dot_across_lanes(gradient_column, u, at);
  }
  // The second part of dk.
  __device__ float answer_backward(float k, const float* k_slot, float dv, const float* dv_slot) {
    add_outer(-k, k_slot, -dv, dv_slot);
    return -dot(weights, dv_slot);
  }
};
