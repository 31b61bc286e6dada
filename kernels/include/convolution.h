// A 3 x 3 convolution with one pixel of padding, forward and backward, on one picture [height,
// width, channels] at a time. Everything a picture needs stays in the processor's caches.
#pragma once
#include "winograd.h"

namespace fastweights {

struct Size {
  int64_t height, width;

  int64_t pixels() const { return height * width; }
  int64_t tiles_down() const { return (height + kTile - 1) / kTile; }
  int64_t tiles_across() const { return (width + kTile - 1) / kTile; }

  // Rows of tiles to process at once: enough for the taps, once in the cache, to be reused often.
  int64_t rows_at_once() const {
    constexpr int64_t kTiles = 32;
    const int64_t rows = kTiles / tiles_across(), all = tiles_down();
    return rows < 1 ? 1 : rows < all ? rows : all;
  }
};

struct Batch {  // the inputs and sizes of a call
  int64_t pictures;
  Size size;
  int64_t threads;

  explicit Batch(Call& call)
      : pictures(call.integer()), size{call.integer(), call.integer()}, threads(call.integer()) {}
};

// Numbers aligned to a cache line.
class Numbers {
 public:
  T* at_least(int64_t count) {
    return lines_.at_least((count + kPerLine - 1) / kPerLine)->numbers;
  }

  T* zeros(int64_t count) {
    T* numbers = at_least(count);
    std::memset(numbers, 0, count * sizeof(T));
    return numbers;
  }

 private:
  static constexpr int64_t kPerLine = 64 / sizeof(T);
  struct alignas(64) CacheLine {
    T numbers[kPerLine];
  };
  Buffer<CacheLine> lines_;
};

struct Space {  // per thread
  Numbers zeros, strip, patches, products;
};

// Transformations applied to each number as it is read.
struct AsItIs {
  FW_INLINE Part operator()(Part x) const { return x; }
};

struct Rectified {  // keeps NaN
  FW_INLINE Part operator()(Part x) const { return x < Part{} ? Part{} : x; }
};

// grad where the ReLU passed x through, otherwise zero.
FW_INLINE Part let_through(Part x, Part grad) { return x <= Part{} ? Part{} : grad; }

// Transform one row of a picture's tiles to points [25, ..., C], with `plane` numbers between
// points. A tile reads N x N pixels, starting `border` pixels before its own; pixels outside the
// picture are zero. The strip holds the transform along one axis, which neighbouring tiles share.
template <int C, int N, class Read>
FW_APART void transform_row(Size size, const T* picture, int64_t row, Read read, Space& space, T* points,
                            int64_t plane) {
  constexpr int border = N == kPatch ? 1 : 0;
  const int64_t columns = size.tiles_across() * kTile + 2 * border, pitch = columns * C;
  const int64_t line = size.width * C;
  const T *zeros = space.zeros.zeros(line), *from[N];
  for (int i = 0; i < N; i++) {
    const int64_t y = row * kTile + i - border;
    from[i] = y < 0 || y >= size.height ? zeros : picture + y * line;
  }
  T* strip = space.strip.at_least(kPatch * pitch);
  for (int i = 0; i < kPatch; i++) {
    T *start = strip + i * pitch, *rest = start + border * C + line;
    std::memset(start, 0, border * C * sizeof(T));
    std::memset(rest, 0, (start + pitch - rest) * sizeof(T));
  }
  for (int64_t x = 0; x < line; x += kLanes) {
    Line<N> down;
    for (int i = 0; i < N; i++) down.at[i] = read(load(from[i] + x));
    const Line<kPatch> result = points_of(down);
    for (int i = 0; i < kPatch; i++) store(strip + i * pitch + border * C + x, result.at[i]);
  }
  for (int64_t tile = 0; tile < size.tiles_across(); tile++)
    for (int i = 0; i < kPatch; i++) {
      const T* start = strip + i * pitch + tile * kTile * C;
      for (int c = 0; c < C; c += kLanes) {
        Line<N> across;
        for (int j = 0; j < N; j++) across.at[j] = load(start + j * C + c);
        const Line<kPatch> result = points_of(across);
        for (int j = 0; j < kPatch; j++)
          store(points + (i * kPatch + j) * plane + tile * C + c, result.at[j]);
      }
    }
}

// Compute one row of output tiles. Calls write(offset in the picture, channel, numbers).
template <int K, class Write>
FW_APART void write_row(Size size, const T* products, int64_t plane, int64_t row, Write write) {
  for (int64_t tile = 0; tile < size.tiles_across(); tile++) {
    const int64_t top = row * kTile, left = tile * kTile;
    const int64_t rows = size.height - top, columns = size.width - left;  // remaining
    for (int k = 0; k < K; k += kLanes) {
      Part result[kTile][kTile];
      const auto along = [](const Line<5>& line) __attribute__((always_inline)) {
        return outputs_of(line);
      };
      along_both<kPatch>(products + tile * K + k, plane, along, result);
      for (int y = 0; y < kTile; y++)
        for (int x = 0; x < kTile; x++)
          if (y < rows && x < columns)
            write(((top + y) * size.width + left + x) * K + k, k, result[y][x]);
    }
  }
}

// Calls body(first row of tiles, number of rows, number of tiles in them).
template <class Body>
FW_INLINE void in_bands(Size size, Body body) {
  const int64_t all = size.tiles_down(), step = size.rows_at_once();
  for (int64_t row = 0; row < all; row += step) {
    const int64_t rows = all - row < step ? all - row : step;
    body(row, rows, rows * size.tiles_across());
  }
}

// `taps` are [25, C, K], transformed.
template <int C, int K, class Read, class Write>
FW_INLINE void convolve(Size size, const T* picture, const T* taps, Space& space, Read read,
                        Write write) {
  const int64_t across = size.tiles_across(), most = size.rows_at_once() * across;
  T* patches = space.patches.at_least(kPoints * most * C);
  T* products = space.products.at_least(kPoints * most * K);
  in_bands(size, [&](int64_t first, int64_t rows, int64_t tiles) {
    for (int64_t row = 0; row < rows; row++)
      transform_row<C, kPatch>(size, picture, first + row, read, space, patches + row * across * C,
                               tiles * C);
    multiply<C, K>(tiles, patches, taps, products);
    for (int64_t row = 0; row < rows; row++)
      write_row<K>(size, products + row * across * K, tiles * K, first + row, write);
  });
}

// taps [25, C, K] += the gradient from one picture and the gradient of its outputs.
template <int C, int K, class Read>
FW_INLINE void add_taps_gradient(Size size, const T* picture, const T* grad, Space& space, Read read,
                                 T* taps) {
  const int64_t across = size.tiles_across(), most = size.rows_at_once() * across;
  T* patches = space.patches.at_least(kPoints * most * C);
  T* grads = space.products.at_least(kPoints * most * K);
  in_bands(size, [&](int64_t first, int64_t rows, int64_t tiles) {
    for (int64_t row = 0; row < rows; row++) {
      transform_row<C, kPatch>(size, picture, first + row, read, space, patches + row * across * C,
                               tiles * C);
      transform_row<K, kTile>(size, grad, first + row, AsItIs(), space, grads + row * across * K,
                              tiles * K);
    }
    multiply_back<C, K>(tiles, patches, grads, taps);
  });
}

// bias [K] += the sum over pixels.
template <int K>
FW_INLINE void add_bias_gradient(int64_t pixels, const T* grad, T* bias) {
  Part sum[K / kLanes];
  for (int i = 0; i < K / kLanes; i++) sum[i] = load(bias + i * kLanes);
  for (int64_t n = 0; n < pixels; n++)
    for (int i = 0; i < K / kLanes; i++) sum[i] += load(grad + n * K + i * kLanes);
  for (int i = 0; i < K / kLanes; i++) store(bias + i * kLanes, sum[i]);
}

// Groups of pictures. Gradients are summed within each group and then over the groups in order, so
// that the sum does not depend on the number of threads.
struct Groups {
  static constexpr int64_t kMost = 32;
  int64_t pictures, count;

  explicit Groups(int64_t pictures) : pictures(pictures), count(pictures < kMost ? pictures : kMost) {}

  int64_t begin(int64_t group) const { return group * pictures / count; }
  int64_t end(int64_t group) const { return begin(group + 1); }
  int64_t largest() const { return (pictures + count - 1) / count; }

  // total [size] = the sum of partial [count, size].
  void add_up(const T* partial, int64_t size, T* total) const {
    if (count == 0) std::memset(total, 0, size * sizeof(T));
    else std::memcpy(total, partial, size * sizeof(T));
    for (int64_t group = 1; group < count; group++)
      for (int64_t i = 0; i < size; i++) total[i] += partial[group * size + i];
  }
};

}  // namespace fastweights
