// Max-pooling of pictures [count, height, width, channels]: 3 x 3 windows, 2 apart, one pixel of padding.
//
// A thread makes four neighbouring channels of one result, of windows forward and of pixels back; the
// next thread the next four, so that a warp's loads and stores lie side by side. A window's winner is
// kept as its place in the window, 0 to 8, in one byte. Back, a pixel gathers from the windows that
// cover it: nothing is zeroed beforehand, and no two threads add to one pixel.

typedef unsigned short bfloat16;  // the upper half of a float

constexpr int THREADS = 256;  // of a block (see cuda.py)
constexpr int TOGETHER = 4, WINDOW = 3;

struct Pictures {
  long long count, channels, height, width;
};

__device__ inline int pooled(long long size) { return static_cast<int>((size + 1) / 2); }

template <class Number>
struct alignas(TOGETHER * sizeof(Number)) Four {
  Number lane[TOGETHER];
};

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bfloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x) << 16);
}

// To the nearest, ties to even; a NaN stays one.
__device__ inline void narrow(float x, float* result) { *result = x; }
__device__ inline void narrow(float x, bfloat16* result) {
  const unsigned bits = __float_as_uint(x);
  *result = x == x ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0;
}

// Which of all results this thread makes; there are fewer than 2^31 numbers (see __init__.py).
struct Position {
  int group, column, row, picture;

  __device__ Position(int channels, int columns, int rows) {
    const unsigned groups = channels / TOGETHER;
    unsigned n = blockIdx.x * static_cast<unsigned>(THREADS) + threadIdx.x;
    group = n % groups, n /= groups;
    column = n % columns, n /= columns;
    row = n % rows, picture = n / rows;
  }
};

// In numbers, where four channels of a pixel begin.
__device__ inline long long offset(const Position& at, int row, int column, int rows, int columns,
                                   int channels) {
  const long long pixel = (static_cast<long long>(at.picture) * rows + row) * columns + column;
  return pixel * channels + at.group * TOGETHER;
}

template <class Number>
struct ForwardArguments {
  Pictures size;
  const Number* x;
  Number* y;
  unsigned char* places;  // null: nobody wants them
};

template <class Number>
__device__ inline void forward(const ForwardArguments<Number>& a) {
  const int channels = a.size.channels, height = a.size.height, width = a.size.width;
  const Position at(channels, pooled(width), pooled(height));
  if (at.picture >= a.size.count) return;
  Four<Number> winner;
  Four<unsigned char> place;
  bool is_first = true;
  for (int i = 0; i < WINDOW; ++i) {
    for (int j = 0; j < WINDOW; ++j) {
      const int row = 2 * at.row - 1 + i, column = 2 * at.column - 1 + j;
      if (row < 0 || row >= height || column < 0 || column >= width) continue;
      const long long from = offset(at, row, column, height, width, channels);
      const auto other = *reinterpret_cast<const Four<Number>*>(a.x + from);
      for (int c = 0; c < TOGETHER; ++c) {
        const float value = widen(other.lane[c]);
        if (is_first || value > widen(winner.lane[c]) || value != value) {  // a NaN wins
          winner.lane[c] = other.lane[c];
          place.lane[c] = i * WINDOW + j;
        }
      }
      is_first = false;
    }
  }
  const long long to = offset(at, at.row, at.column, pooled(height), pooled(width), channels);
  *reinterpret_cast<Four<Number>*>(a.y + to) = winner;
  if (a.places) *reinterpret_cast<Four<unsigned char>*>(a.places + to) = place;
}

template <class Number>
struct BackwardArguments {
  Pictures size;
  const Number* grad_y;
  const unsigned char* places;
  Number* grad_x;
};

template <class Number>
__device__ inline void backward(const BackwardArguments<Number>& a) {
  const int channels = a.size.channels, height = a.size.height, width = a.size.width;
  const Position at(channels, width, height);
  if (at.picture >= a.size.count) return;
  const int rows = pooled(height), columns = pooled(width);
  float sum[TOGETHER] = {0.f, 0.f, 0.f, 0.f};
  for (int row = at.row / 2; row <= (at.row + 1) / 2; ++row) {
    for (int column = at.column / 2; column <= (at.column + 1) / 2; ++column) {
      if (row >= rows || column >= columns) continue;
      const int place = (at.row - 2 * row + 1) * WINDOW + at.column - 2 * column + 1;
      const long long from = offset(at, row, column, rows, columns, channels);
      const auto places = *reinterpret_cast<const Four<unsigned char>*>(a.places + from);
      const auto grad = *reinterpret_cast<const Four<Number>*>(a.grad_y + from);
      for (int c = 0; c < TOGETHER; ++c)
        if (places.lane[c] == place) sum[c] += widen(grad.lane[c]);
    }
  }
  Four<Number> result;
  for (int c = 0; c < TOGETHER; ++c) narrow(sum[c], &result.lane[c]);
  const long long to = offset(at, at.row, at.column, height, width, channels);
  *reinterpret_cast<Four<Number>*>(a.grad_x + to) = result;
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
