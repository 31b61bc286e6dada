// The backward of a matrix written by the delta rule, for laws whose gradient needs W_t in reverse.
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
// W is rewound by subtracting the stored updates: no W is stored, and nothing is inverted (which
// explodes). An episode's W_{t-1} is gone once `is_first[t]` forgot it, so the backward walks the
// unroll segment by segment: it sums each segment's updates once, in the forward's order, to get
// the W its last row saw, then rewinds. Every row is summed once, whatever the resets.
//
// G is held twice, by row and by column: two cheap rank-one updates replace D sums over lanes.
#pragma once
#include "matrix.cuh"

// Where several warps share a block of threads, a lane is one of its warp.
__device__ inline Place place_in_warp(const Sizes& sizes) {
  Place at(sizes);
  at.lane = threadIdx.x % WARP;
  return at;
}

// First row of the segment that ends at row `last`; 32 flags are looked at together.
__device__ inline int segment_start(const Flags& flags, const Place& at, int last) {
  const int lane = threadIdx.x % WARP;
  for (int base = last; base >= 0; base -= WARP) {
    const unsigned found = __ballot_sync(ALL_LANES, at.is_first(flags, base - lane));
    if (found) return base - (__ffs(found) - 1);
  }
  return 0;
}

// weights += sum over rows first..last of key_t update_t^T, this lane's row of it. `key(t)` and
// `update(t)` give this lane's entries; eight rows are loaded together, to wait for memory once.
constexpr int REBUILT_TOGETHER = 8;

template <class Key, class Update>
__device__ inline void rebuild(float (&weights)[D], int first, int last, Key key,
                               Update update, float* slots) {
  const int lane = threadIdx.x % WARP;
  for (int t = first; t <= last; t += REBUILT_TOGETHER) {
    float keys[REBUILT_TOGETHER];
#pragma unroll
    for (int n = 0; n < REBUILT_TOGETHER; ++n) {
      const bool inside = t + n <= last;
      keys[n] = inside ? key(t + n) : 0.f;
      slots[n * WARP + lane] = inside ? update(t + n) : 0.f;
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < REBUILT_TOGETHER; ++n) add_scaled(weights, keys[n], slots + n * WARP);
    __syncwarp();
  }
}

// W by row, G by row and by column, and the four moves above. A vector comes as this lane's entry
// and as the slot that holds all entries.
struct Rewound {
  float weights[D], gradient_row[D], gradient_column[D];

  __device__ void forget_gradient() {
    clear(gradient_row);
    clear(gradient_column);
  }
  __device__ void add_outer(float row, const float* rows, float column, const float* columns) {
    add_scaled(gradient_row, row, columns);
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
  __device__ float rewind(float k, const float* u_slot) {
    add_scaled(weights, -k, u_slot);
    return dot(gradient_row, u_slot);
  }
  // The second part of dk.
  __device__ float answer_backward(float k, const float* k_slot, float dv, const float* dv_slot) {
    add_outer(-k, k_slot, -dv, dv_slot);
    return -dot(weights, dv_slot);
  }
};
