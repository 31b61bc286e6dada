// Max-pooling with 3 x 3 windows, stride 2 and one pixel of padding; channels last, kBlock at a
// time. The forward function computes a row of windows, the backward one two rows of pixels.
//
// A window's maximum is stored as its position in the window, 0 to 8, in one byte.
#pragma once
#include "call.h"
#include "lanes.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace fastweights {

// Channels at a time: as many numbers, widened for arithmetic, as one register holds. Compilers
// split wider vectors lane by lane in places, which is ten times as slow.
constexpr int kBlock = kRegisterBytes / int(sizeof(T) < sizeof(float) ? sizeof(float) : sizeof(T));
constexpr int kWindow = 3, kStride = 2, kPadding = 1;

template <class Number>
struct VectorOf {
  typedef Number Type __attribute__((vector_size(kBlock * sizeof(Number)), may_alias));
};
template <class Number>
using Vector = typename VectorOf<Number>::Type;

// Like __builtin_convertvector, which GCC 12 compiles to one instruction per lane if widths differ.
template <class To, class From>
FW_INLINE Vector<To> convert(Vector<From> from) {
  From in[kBlock];
  To out[kBlock];
  Vector<To> result;
  std::memcpy(in, &from, sizeof(in));
  for (int lane = 0; lane < kBlock; lane++) out[lane] = To(in[lane]);
  std::memcpy(&result, out, sizeof(out));
  return result;
}

template <class Stored>
struct Arithmetic {
  using Real = Stored;
  using Integer = std::conditional_t<sizeof(Stored) == 8, int64_t, int32_t>;
  static Vector<Real> widen(Vector<Stored> x) { return x; }
  static Vector<Stored> narrow(Vector<Real> x) { return x; }
};

template <>
struct Arithmetic<bfloat16> {
  using Real = float;
  using Integer = int32_t;
  static Vector<float> widen(Vector<uint16_t> x) {
    return (Vector<float>)(convert<uint32_t, uint16_t>(x) << 16);
  }
  // Rounds to nearest, ties to even; keeps NaN.
  static Vector<uint16_t> narrow(Vector<float> x) {
    Vector<uint32_t> bits = (Vector<uint32_t>)x;
    Vector<uint32_t> rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    rounded = x == x ? rounded : Vector<uint32_t>{} + 0x7fc0;
    return convert<uint16_t, uint32_t>(rounded);
  }
};

using Math = Arithmetic<T>;
using Real = Vector<Math::Real>;
using Place = Vector<Math::Integer>;
using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, T>;

template <class Number>
Vector<Number> load(const void* from, int64_t live) {
  Vector<Number> block{};
  if (live == kBlock)
    std::memcpy(&block, from, sizeof(block));
  else
    std::memcpy(&block, from, live * sizeof(Number));
  return block;
}

template <class Number>
void store(void* to, Vector<Number> block, int64_t live) {
  if (live == kBlock)
    std::memcpy(to, &block, sizeof(block));
  else
    std::memcpy(to, &block, live * sizeof(Number));
}

inline int64_t pooled(int64_t size) { return (size - 1) / kStride + 1; }

// The rows or columns of a window that lie inside the picture, along one axis.
struct Span {
  int64_t start, first, last;  // the window's start (may be -1); taps first <= tap < last

  Span(int64_t window, int64_t size)
      : start(window * kStride - kPadding), first(std::max<int64_t>(0, -start)),
        last(std::min<int64_t>(kWindow, size - start)) {}

  bool whole() const { return first == 0 && last == kWindow; }
};

struct Winner {
  Real value;
  Place place;

  FW_INLINE void meet(Real other, int64_t tap) {
    auto wins = (other > value) | (other != other);
    value = wins ? other : value;
    place = wins ? Place{} + Math::Integer(tap) : place;
  }
};

// `top` is the address of row `down.start`, even if that row is outside the picture.
FW_INLINE Winner search(const T* top, int64_t pitch, int64_t channels, const Span& down,
                        const Span& across, int64_t live) {
  Winner winner{Real{} - std::numeric_limits<Math::Real>::infinity(),
                Place{} + Math::Integer(down.first * kWindow + across.first)};
  for (int64_t i = down.first; i < down.last; i++) {
    const T* pixel = top + i * pitch + across.start * channels;
    for (int64_t j = across.first; j < across.last; j++)
      winner.meet(Math::widen(load<Bits>(pixel + j * channels, live)), i * kWindow + j);
  }
  return winner;
}

// The same for a window entirely inside the picture, with loops of known length.
FW_INLINE Winner search_whole(const T* window, int64_t pitch, int64_t channels) {
  Winner winner{Math::widen(load<Bits>(window, kBlock)), Place{}};
  for (int tap = 1; tap < kWindow * kWindow; tap++) {
    const T* pixel = window + tap / kWindow * pitch + tap % kWindow * channels;
    winner.meet(Math::widen(load<Bits>(pixel, kBlock)), tap);
  }
  return winner;
}

template <bool kKeepPlaces>
void search_row(const T* top, int64_t width, int64_t channels, const Span& down, T* y,
                uint8_t* places) {
  const int64_t pitch = width * channels;
  for (int64_t column = 0; column < pooled(width); column++) {
    const Span across(column, width);
    for (int64_t c = 0; c < channels; c += kBlock) {
      const int64_t live = std::min<int64_t>(kBlock, channels - c), out = column * channels + c;
      const bool whole = live == kBlock && down.whole() && across.whole();
      const Winner winner =
          whole ? search_whole(top + across.start * channels + c, pitch, channels)
                : search(top + c, pitch, channels, down, across, live);
      store<Bits>(y + out, Math::narrow(winner.value), live);
      if (kKeepPlaces)
        store<uint8_t>(places + out, convert<uint8_t, Math::Integer>(winner.place), live);
    }
  }
}

// Pool a row of windows of a picture that is `width` pixels wide. `top` is the address of the input's
// row `down.start`, which may be outside the picture. Positions are stored if `places` is not null.
FW_INLINE void pool_row(const T* top, int64_t width, int64_t channels, const Span& down, T* y,
                        uint8_t* places) {
  if (places)
    search_row<true>(top, width, channels, down, y, places);
  else
    search_row<false>(top, width, channels, down, y, places);
}

// What a window passes back: its gradient, for the position of its maximum.
struct Prize {
  Real grad{};
  Place place = Place{} - 1;  // nowhere

  FW_INLINE Real at(int row, int column) const {
    return place == Place{} + Math::Integer(row * kWindow + column) ? grad : Real{};
  }
};

// The gradient of pixel rows 2i and 2i + 1 of a picture [height, width, channels]. Each pixel
// gathers from the windows that cover it, so no zeroing is needed and no two threads share a pixel.
// Window (i, j) and its lower and right neighbours cover pixels 2i, 2i + 1 by 2j, 2j + 1.
inline void unpool_rows(const T* grad_y, const uint8_t* places, int64_t i, int64_t height,
                        int64_t width, int64_t channels, T* grad_x) {
  const int64_t columns = pooled(width);
  const bool has_lower_window = i + 1 < pooled(height), has_lower_pixel = 2 * i + 1 < height;
  for (int64_t c = 0; c < channels; c += kBlock) {
    const int64_t live = std::min<int64_t>(kBlock, channels - c);
    auto prize = [&](bool exists, int64_t line, int64_t column) {
      if (!exists || column >= columns) return Prize{};
      const int64_t from = (line * columns + column) * channels + c;
      return Prize{Math::widen(load<Bits>(grad_y + from, live)),
                   convert<Math::Integer, uint8_t>(load<uint8_t>(places + from, live))};
    };
    auto give = [&](int64_t line, int64_t column, Real grad) {
      T* pixel = grad_x + ((2 * i + line) * width + column) * channels + c;
      store<Bits>(pixel, Math::narrow(grad), live);
    };
    Prize here = prize(true, i, 0), below = prize(has_lower_window, i + 1, 0);
    for (int64_t j = 0; j < columns; j++) {
      const Prize right = prize(true, i, j + 1);
      const Prize diagonal = prize(has_lower_window, i + 1, j + 1);
      const bool has_right_pixel = 2 * j + 1 < width;
      give(0, 2 * j, here.at(1, 1));
      if (has_right_pixel) give(0, 2 * j + 1, here.at(1, 2) + right.at(1, 0));
      if (has_lower_pixel) give(1, 2 * j, here.at(2, 1) + below.at(0, 1));
      if (has_lower_pixel && has_right_pixel)
        give(1, 2 * j + 1, here.at(2, 2) + right.at(2, 0) + below.at(0, 2) + diagonal.at(0, 0));
      here = right;
      below = diagonal;
    }
  }
}

}  // namespace fastweights
