// Code shared by all kernels: a thread's indices, access to its numbers, exchange between lanes.
//
// A kernel is compiled once per head size: D is HEAD_SIZE (8, 16, 32 or 64); other head sizes are
// padded. One block handles one (batch, head). A group of its threads shares one or more matrices:
// lane i owns row or column i of every D x D matrix in registers, and lanes exchange vectors
// through slots of shared memory. Lanes beyond the true size hold zeros, so sums need no mask.
//
// Up to D = 32 a group is a warp and a lane is a thread. At D = 64 a group is four warps, and a lane
// is two neighbouring threads, its parts. Each holds half of the row, in alternating runs of four.
#pragma once

#ifndef HEAD_SIZE
#error "compile with -DHEAD_SIZE=8, 16, 32 or 64"
#endif

constexpr int D = HEAD_SIZE;
constexpr int WARP = 32;
constexpr int LANES = D < WARP ? WARP : D;
constexpr int PARTS = D > WARP ? 2 : 1;  // threads per lane
constexpr int GROUP = LANES * PARTS;     // threads that share a matrix
constexpr int ENTRIES = D / PARTS;       // entries of a row or column per thread
constexpr int SLOT = LANES;              // floats of shared memory that hold one vector
constexpr int MOST_GROUPS = 4;           // of a block, at D = 64
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOWEST = -3.402823466e38f;

// The tests' CPU shim replaces this by an array that it fills with NaN for every block.
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
  long long time, batch, heads, keys, values, option, second_option;
};

__device__ inline int group_of_thread() { return threadIdx.x / GROUP; }
__device__ inline int part_of_thread() { return threadIdx.x % PARTS; }

// The position of this thread's n-th entry in its row or column.
__device__ inline int position(int n) {
  return n / 4 * 4 * PARTS + 4 * part_of_thread() + n % 4;
}

// A lane's batch, head and entry. Our own tensors are contiguous: [T, B, H, entries].
struct Place {
  int lane, block, blocks, batch, head, time;

  __device__ explicit Place(const Sizes& sizes)
      : lane(threadIdx.x % GROUP / PARTS), block(blockIdx.x), blocks(gridDim.x),
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
  // A number shared by all lanes of a head, such as beta.
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
  // Does nothing if `own` is null, as for tensors that only a backward pass would need.
  __device__ void store(float* own, int t, int entries, float value) const {
    if (own && lane < entries) own[index(t, entries) + lane] = value;
  }
  __device__ void store_scalar(float* own, int t, float value) const {
    if (own && lane == 0) own[index(t, 1)] = value;
  }
  // Row numbers fit in an int (support.py ensures this): 64 bits would take one register too many.
  __device__ long long index(int t, int entries) const {
    return static_cast<long long>(t * blocks + block) * entries;
  }
};

// A barrier for the threads that share a matrix.
__device__ inline void sync() {
  if (GROUP == WARP) {
    __syncwarp();
  } else {
    __barrier_sync_count(1 + group_of_thread(), GROUP);
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

// For sums over more lanes than a warp has threads: every warp reads the numbers of all lanes.
struct AllLanes {
  float low, high;  // thread i of a warp has those of lanes i and WARP + i

  __device__ explicit AllLanes(float x) {
    SHARED_FLOATS(numbers, MOST_GROUPS * SLOT);
    float* mine = numbers + group_of_thread() * SLOT;
    mine[threadIdx.x % GROUP / PARTS] = x;
    sync();
    low = mine[threadIdx.x % WARP];
    high = mine[WARP + threadIdx.x % WARP];
    sync();
  }
};

// The sum over the lanes.
__device__ inline float lane_sum(float x) {
  if (GROUP == WARP) return warp_sum(x);
  const AllLanes all(x);
  return warp_sum(all.low + all.high);
}

// The maximum over the lanes.
__device__ inline float lane_max(float x) {
  if (GROUP == WARP) return warp_max(x);
  const AllLanes all(x);
  return warp_max(fmaxf(all.low, all.high));
}

// exp(x - largest); zero for a lane that is not in use.
__device__ inline float power(float x, float largest) {
  return x == LOWEST ? 0.f : __expf(x - largest);
}

// exp(x) / sum exp(x) over the lanes in `present`; zero elsewhere.
__device__ inline float softmax(float x, bool present) {
  x = present ? x : LOWEST;
  if (GROUP == WARP) {
    const float mine = power(x, warp_max(x));
    return __fdividef(mine, warp_sum(mine));
  }
  const AllLanes all(x);
  const float largest = warp_max(fmaxf(all.low, all.high));
  const float sum = warp_sum(power(all.low, largest) + power(all.high, largest));
  return __fdividef(power(x, largest), sum);
}

__device__ inline float softmax_backward(float probability, float gradient) {
  return probability * (gradient - lane_sum(probability * gradient));
}

// Values of the first option: the map of keys and queries.
enum { SOFTMAX, UNIT };

// x / |x| over the lanes (zero beyond the true size), and 1 / |x|.
struct Direction {
  float entry, scale;

  __device__ explicit Direction(float x) : scale(rsqrtf(lane_sum(x * x) + 1e-6f)) {
    entry = scale * x;
  }
};

// The gradient of the map's input, from the gradient of its result. Softmax and unit have the same
// form: each number has a slope, which is its probability for softmax and 1 / |x| for unit.
__device__ inline float map_backward(float mapped, float scale, bool is_unit, float gradient) {
  const float along = lane_sum(mapped * gradient);
  return is_unit ? scale * (gradient - mapped * along) : mapped * (gradient - along);
}

__device__ inline float fast_sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

// If the second option is the index of a write-strength map: 1 for sigmoid, 2 for double_sigmoid.
__device__ inline float largest_strength(const Sizes& sizes) {
  return sizes.second_option ? 2.f : 1.f;
}

// The derivative of such a strength, written so that it keeps no register live outside.
__device__ inline float strength_slope(float strength, const Sizes& sizes) {
  return strength - (sizes.second_option ? 0.5f : 1.f) * strength * strength;
}

// Absolute error about 1e-7. Uses comparisons rather than fminf, so that a NaN stays a NaN.
__device__ inline float fast_tanh(float x) {
  x = x > 15.f ? 15.f : x;
  x = x < -15.f ? -15.f : x;
  return 1.f - __fdividef(2.f, __expf(2.f * x) + 1.f);
}

template <int N>
__device__ inline void clear(float (&row)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) row[n] = 0.f;
}

template <int N>
__device__ inline void scale(float (&row)[N], float by) {
#pragma unroll
  for (int n = 0; n < N; ++n) row[n] *= by;
}

// The four numbers of a slot that match a thread's entries n .. n + 3; n is a multiple of 4.
__device__ inline float4 four(const float* slot, int n) {
  return *reinterpret_cast<const float4*>(slot + position(n));
}

// The sum over a lane's parts.
__device__ inline float part_sum(float x) {
#pragma unroll
  for (int offset = 1; offset < PARTS; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
  return x;
}

// row . slot, in four independent sums. Rows have ENTRIES numbers per thread, or four for a narrow
// matrix.
template <int N>
__device__ inline float dot(const float (&row)[N], const float* slot) {
  float a = 0.f, b = 0.f, c = 0.f, d = 0.f;
#pragma unroll
  for (int n = 0; n < N; n += 4) {
    const float4 x = four(slot, n);
    a += row[n] * x.x;
    b += row[n + 1] * x.y;
    c += row[n + 2] * x.z;
    d += row[n + 3] * x.w;
  }
  return part_sum((a + b) + (c + d));
}

// slot . slot: every lane computes the same number, which is faster than a sum over lanes.
__device__ inline float dot_slots(const float* left, const float* right) {
  float a = 0.f, b = 0.f, c = 0.f, d = 0.f;
#pragma unroll
  for (int n = 0; n < ENTRIES; n += 4) {
    const float4 x = four(left, n), y = four(right, n);
    a += x.x * y.x;
    b += x.y * y.y;
    c += x.z * y.z;
    d += x.w * y.w;
  }
  return part_sum((a + b) + (c + d));
}

// row += scale * slot: this lane's row of an outer product.
template <int N>
__device__ inline void add_scaled(float (&row)[N], float scale, const float* slot) {
#pragma unroll
  for (int n = 0; n < N; n += 4) {
    const float4 x = four(slot, n);
    row[n] += scale * x.x;
    row[n + 1] += scale * x.y;
    row[n + 2] += scale * x.z;
    row[n + 3] += scale * x.w;
  }
}
