// What every kernel shares: who a thread is, how it finds its numbers, how lanes exchange them.
//
// A kernel is compiled once per head size: D is HEAD_SIZE (8, 16, 32 or 64), head sizes between are
// padded. One block serves one (batch, head); lane i owns row or column i of every D x D matrix in
// registers; lanes exchange vectors through slots of shared memory. Lanes beyond the true size hold
// zeros, so that no sum needs a mask.
#pragma once

#ifndef HEAD_SIZE
#error "compile with -DHEAD_SIZE=8, 16, 32 or 64"
#endif

constexpr int D = HEAD_SIZE;
constexpr int WARP = 32;
constexpr int THREADS = D < WARP ? WARP : D;  // of a block whose threads share one matrix
constexpr int SLOT = THREADS;                 // floats of shared memory that hold one vector
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOWEST = -3.402823466e38f;

// The CPU shim of the tests replaces this by an array that it fills with NaN for every block.
#ifndef SHARED_FLOATS
#define SHARED_FLOATS(name, count) __shared__ __align__(16) float name[count]
#endif

// A caller's tensor: [T, B, H, entries], or a state [B, H, K, V], with any strides. Missing axes
// have stride zero. All fields of all arguments are eight bytes wide (see arguments.py).
struct View {
  float* data;
  long long strides[4];
};

struct Flags {  // is_first [T, B]
  const unsigned char* data;
  long long strides[4];
};

struct Sizes {
  long long time, batch, heads, keys, values, option;
};

// One lane's place in the problem. Our own tensors are contiguous: [T, B, H, entries].
struct Place {
  int lane, block, blocks, batch, head, time;

  __device__ explicit Place(const Sizes& sizes)
      : lane(threadIdx.x), block(blockIdx.x), blocks(gridDim.x),
        batch(block / static_cast<int>(sizes.heads)), head(block % static_cast<int>(sizes.heads)),
        time(static_cast<int>(sizes.time)) {}

  // Entry `lane` of row t; zero beyond the tensor's `entries` and outside the unroll.
  __device__ float load(const View& view, int t, int entries) const {
    if (lane >= entries || t < 0 || t >= time) return 0.f;
    return view.data[t * view.strides[0] + batch * view.strides[1] + head * view.strides[2] +
                     lane * view.strides[3]];
  }
  __device__ float load(const float* own, int t, int entries) const {
    return lane < entries && t >= 0 && t < time ? own[index(t, entries) + lane] : 0.f;
  }
  // A number that all lanes of a head share, such as beta.
  __device__ float load_scalar(const View& view, int t) const {
    if (t < 0 || t >= time) return 0.f;
    return view.data[t * view.strides[0] + batch * view.strides[1] + head * view.strides[2]];
  }
  __device__ float load_scalar(const float* own, int t) const {
    return t >= 0 && t < time ? own[index(t, 1)] : 0.f;
  }
  __device__ bool is_first(const Flags& flags, int t) const {
    if (t < 0 || t >= time) return false;
    return flags.data[t * flags.strides[0] + batch * flags.strides[1]] != 0;
  }
  // Nothing where `own` is null: what only a backward would need.
  __device__ void store(float* own, int t, int entries, float value) const {
    if (own && lane < entries) own[index(t, entries) + lane] = value;
  }
  __device__ void store_scalar(float* own, int t, float value) const {
    if (own && lane == 0) own[index(t, 1)] = value;
  }
  __device__ long long index(int t, int entries) const {
    return static_cast<long long>(t * blocks + block) * entries;
  }
};

__device__ inline void sync() {
  if (THREADS == WARP) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = WARP / 2; offset; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = WARP / 2; offset; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
  return x;
}

// The sum over all threads that share a matrix; `slot` is scratch for more than one warp.
__device__ inline float block_sum(float x, float* slot) {
  x = warp_sum(x);
  if (THREADS == WARP) return x;
  slot[threadIdx.x] = x;
  __syncthreads();
  x = slot[0] + slot[THREADS - 1];  // every lane of a warp holds its warp's sum
  __syncthreads();
  return x;
}

// exp(x) / sum exp(x) over the lanes in `present`; zero elsewhere.
__device__ inline float warp_softmax(float x, bool present) {
  const float largest = warp_max(present ? x : LOWEST);  // by all lanes: a shuffle waits for all
  const float power = present ? __expf(x - largest) : 0.f;
  return __fdividef(power, warp_sum(power));
}

__device__ inline float warp_softmax_backward(float probability, float gradient) {
  return probability * (gradient - warp_sum(probability * gradient));
}

__device__ inline float fast_sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

// Absolute error about 1e-7. Comparisons rather than fminf, so that a NaN stays a NaN.
__device__ inline float fast_tanh(float x) {
  x = x > 15.f ? 15.f : x;
  x = x < -15.f ? -15.f : x;
  return 1.f - __fdividef(2.f, __expf(2.f * x) + 1.f);
}

__device__ inline void clear(float (&row)[D]) {
#pragma unroll
  for (int j = 0; j < D; ++j) row[j] = 0.f;
}

// row . slot, in four sums that do not wait for each other.
__device__ inline float dot(const float (&row)[D], const float* slot) {
  float a = 0.f, b = 0.f, c = 0.f, d = 0.f;
#pragma unroll
  for (int j = 0; j < D; j += 4) {
    const float4 x = *reinterpret_cast<const float4*>(slot + j);
    a += row[j] * x.x;
    b += row[j + 1] * x.y;
    c += row[j + 2] * x.z;
    d += row[j + 3] * x.w;
  }
  return (a + b) + (c + d);
}

// slot . slot: every lane computes the same number, which is faster than a sum over lanes.
__device__ inline float dot_slots(const float* left, const float* right) {
  float a = 0.f, b = 0.f, c = 0.f, d = 0.f;
#pragma unroll
  for (int j = 0; j < D; j += 4) {
    const float4 x = *reinterpret_cast<const float4*>(left + j);
    const float4 y = *reinterpret_cast<const float4*>(right + j);
    a += x.x * y.x;
    b += x.y * y.y;
    c += x.z * y.z;
    d += x.w * y.w;
  }
  return (a + b) + (c + d);
}

// row += scale * slot: this lane's row of an outer product.
__device__ inline void add_scaled(float (&row)[D], float scale, const float* slot) {
#pragma unroll
  for (int j = 0; j < D; j += 4) {
    const float4 x = *reinterpret_cast<const float4*>(slot + j);
    row[j] += scale * x.x;
    row[j + 1] += scale * x.y;
    row[j + 2] += scale * x.z;
    row[j + 3] += scale * x.w;
  }
}
