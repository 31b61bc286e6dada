// Max-pooling of pictures [count, height, width, channels]: 3 x 3 windows, stride 2, padding 1.
//
// A thread handles sixteen bytes of channels of one window and the next thread the next sixteen, so
// that a warp's loads and stores are contiguous. A window's maximum is stored as its position in
// the window, 0 to 8, in one byte. In the backward pass, the thread of window (i, j) computes
// pixels 2i, 2i + 1 by 2j, 2j + 1 from that window and its lower and right neighbours, as the C++
// kernel does (include/pooling.h): no zeroing is needed, and no two threads add to one pixel.

typedef unsigned short bfloat16;  // the upper half of a float

constexpr int THREADS = 256;  // per block; WARPS in cuda.py
constexpr int WINDOW = 3;

template <class Number>
constexpr int TOGETHER = 16 / sizeof(Number);  // channels per thread

struct Pictures {
  long long count, channels, height, width;
};

template <class Number, int N>
struct alignas(N * sizeof(Number)) Pack {
  Number lane[N];
};

template <class Number>
using Numbers = Pack<Number, TOGETHER<Number>>;
template <class Number>
using Places = Pack<unsigned char, TOGETHER<Number>>;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bfloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x) << 16);
}

// Rounds to nearest, ties to even; keeps NaN.
__device__ inline void narrow(float x, float* result) { *result = x; }
__device__ inline void narrow(float x, bfloat16* result) {
  const unsigned bits = __float_as_uint(x);
  *result = x == x ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0;
}

template <class Packed, class Number>
__device__ inline Packed load(const Number* from) {
  return *reinterpret_cast<const Packed*>(from);
}

template <class Number>
__device__ inline void store(Number* to, const float* numbers) {
  Numbers<Number> packed;
  for (int c = 0; c < TOGETHER<Number>; ++c) narrow(numbers[c], &packed.lane[c]);
  *reinterpret_cast<Numbers<Number>*>(to) = packed;
}

// This thread's window, and the memory offsets of its pixels and windows. There are fewer than 2^31
// numbers (MOST_NUMBERS in cuda.py), so 32-bit indices suffice.
template <class Number>
struct Place {
  unsigned channels, height, width, rows, columns;
  unsigned channel, column, row, picture;
  bool exists;

  __device__ explicit Place(const Pictures& size)
      : channels(size.channels), height(size.height), width(size.width), rows((height + 1) / 2),
        columns((width + 1) / 2) {
    const unsigned groups = channels / TOGETHER<Number>;
    unsigned n = blockIdx.x * static_cast<unsigned>(THREADS) + threadIdx.x;
    channel = n % groups * TOGETHER<Number>, n /= groups;
    column = n % columns, n /= columns;
    row = n % rows, picture = n / rows;
    exists = picture < size.count;
  }

  __device__ unsigned pixel(unsigned y, unsigned x) const {
    return ((picture * height + y) * width + x) * channels + channel;
  }
  __device__ unsigned window(unsigned i, unsigned j) const {
    return ((picture * rows + i) * columns + j) * channels + channel;
  }
};

template <class Number>
struct ForwardArguments {
  Pictures size;
  const Number* x;
  Number* y;
  unsigned char* places;  // null if not wanted
};

template <class Number>
__device__ inline void forward(const ForwardArguments<Number>& a) {
  constexpr int N = TOGETHER<Number>;
  const Place<Number> at(a.size);
  if (!at.exists) return;
  const int first_row = at.row == 0, first_column = at.column == 0;  // skip taps outside
  float best[N];
  Places<Number> places;
  for (int c = 0; c < N; ++c) {
    best[c] = __uint_as_float(0xff800000);  // minus infinity
    places.lane[c] = first_row * WINDOW + first_column;
  }
  for (int i = first_row; i < WINDOW; ++i) {
    const unsigned y = 2 * at.row + i - 1;
    if (y >= at.height) break;
    for (int j = first_column; j < WINDOW; ++j) {
      const unsigned x = 2 * at.column + j - 1;
      if (x >= at.width) break;
      const auto pixel = load<Numbers<Number>>(a.x + at.pixel(y, x));
      for (int c = 0; c < N; ++c) {
        const float value = widen(pixel.lane[c]);
        if (value > best[c] || value != value) {  // a NaN wins
          best[c] = value;
          places.lane[c] = i * WINDOW + j;
        }
      }
    }
  }
  const unsigned to = at.window(at.row, at.column);
  store(a.y + to, best);
  if (a.places) *reinterpret_cast<Places<Number>*>(a.places + to) = places;
}

template <class Number>
struct BackwardArguments {
  Pictures size;
  const Number* grad_y;
  const unsigned char* places;
  Number* grad_x;
};

// What a window passes back: its gradient, for the position of its maximum.
template <class Number>
struct Prize {
  Numbers<Number> grad;
  Places<Number> places;

  __device__ Prize(const BackwardArguments<Number>& a, unsigned at)
      : grad(load<Numbers<Number>>(a.grad_y + at)), places(load<Places<Number>>(a.places + at)) {}

  __device__ void give(int row, int column, float* sum) const {
    for (int c = 0; c < TOGETHER<Number>; ++c)
      if (places.lane[c] == row * WINDOW + column) sum[c] += widen(grad.lane[c]);
  }
};

template <class Number>
__device__ inline void backward(const BackwardArguments<Number>& a) {
  constexpr int N = TOGETHER<Number>;
  const Place<Number> at(a.size);
  if (!at.exists) return;
  const unsigned i = at.row, j = at.column;
  const bool has_lower_window = i + 1 < at.rows, has_right_window = j + 1 < at.columns;
  float here[N] = {}, right[N] = {}, below[N] = {}, diagonal[N] = {};  // of the four pixels
  const Prize<Number> own(a, at.window(i, j));
  own.give(1, 1, here);
  own.give(1, 2, right);
  own.give(2, 1, below);
  own.give(2, 2, diagonal);
  if (has_right_window) {
    const Prize<Number> prize(a, at.window(i, j + 1));
    prize.give(1, 0, right);
    prize.give(2, 0, diagonal);
  }
  if (has_lower_window) {
    const Prize<Number> prize(a, at.window(i + 1, j));
    prize.give(0, 1, below);
    prize.give(0, 2, diagonal);
  }
  if (has_lower_window && has_right_window)
    Prize<Number>(a, at.window(i + 1, j + 1)).give(0, 0, diagonal);
  const bool has_lower_pixel = 2 * i + 1 < at.height, has_right_pixel = 2 * j + 1 < at.width;
  store(a.grad_x + at.pixel(2 * i, 2 * j), here);
  if (has_right_pixel) store(a.grad_x + at.pixel(2 * i, 2 * j + 1), right);
  if (has_lower_pixel) store(a.grad_x + at.pixel(2 * i + 1, 2 * j), below);
  if (has_lower_pixel && has_right_pixel)
    store(a.grad_x + at.pixel(2 * i + 1, 2 * j + 1), diagonal);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    max_pool_forward_float32(const __grid_constant__ ForwardArguments<float> a) {
  forward(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    max_pool_forward_bfloat16(const __grid_constant__ ForwardArguments<bfloat16> a) {
  forward(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    max_pool_backward_float32(const __grid_constant__ BackwardArguments<float> a) {
  backward(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    max_pool_backward_bfloat16(const __grid_constant__ BackwardArguments<bfloat16> a) {
  backward(a);
}
