// 3 x 3 convolutions over channels-last pictures, by Winograd's minimal filtering algorithm
// F(3 x 3, 3 x 3) (Lavin & Gray 2016): 25 products instead of 81 for a tile of 3 x 3 outputs.
//
// A tile reads a patch of 5 x 5 inputs. Polynomials through the points 0, 1, -1, 2 and infinity turn
// the sum over taps into a product at each of 25 points. The sums over channels are then 25 matrix
// products:
//
//     outputs = A^T [ (G taps G^T) . (B^T patch B) ] A
//
// All steps are linear, so the gradient of the taps is G^T [ (B^T patch B) . (A grad A^T) ] G.
#pragma once
#include "call.h"

namespace fastweights {

constexpr int kTile = 3, kTaps = 3, kPatch = kTile + kTaps - 1, kPoints = kPatch * kPatch;
constexpr int kLanes = kRegisterBytes / int(sizeof(T));
using Part = Row<T, kLanes>::Part;

FW_INLINE Part load(const T* from) {
  return *reinterpret_cast<const Row<T, kLanes>::Anywhere*>(from);
}
FW_INLINE void store(T* to, Part part) {
  *reinterpret_cast<Row<T, kLanes>::Anywhere*>(to) = part;
}

template <int N>
struct Line {
  Part at[N];
};

// B^T, A^T, A, G and G^T, each along one axis.
FW_INLINE Line<5> points_of(const Line<5>& patch) {
  const Part *d = patch.at, slope = d[3] - d[1], step = d[3] - d[2];
  return {{slope + T(2) * (d[0] - d[2]), step - T(2) * d[1], step + T(2) * (d[1] - d[2]), slope,
           (d[4] - d[2]) - T(2) * slope}};
}

FW_INLINE Line<3> outputs_of(const Line<5>& points) {
  const Part *m = points.at, even = m[1] + m[2];
  return {{(m[0] + even) + m[3], (m[1] - m[2]) + T(2) * m[3], (even + m[4]) + T(4) * m[3]}};
}

FW_INLINE Line<5> points_of(const Line<3>& grad) {
  const Part *y = grad.at, even = y[0] + y[2];
  return {{y[0], even + y[1], even - y[1], (y[0] + T(2) * y[1]) + T(4) * y[2], y[2]}};
}

FW_INLINE Line<5> points_of_taps(const Line<3>& taps) {
  const Part *g = taps.at, even = g[0] + g[2];
  return {{T(1. / 2) * g[0], T(-1. / 2) * (even + g[1]), T(1. / 6) * (g[1] - even),
           T(1. / 6) * (g[0] + T(2) * g[1] + T(4) * g[2]), g[2]}};
}

FW_INLINE Line<3> taps_of(const Line<5>& points) {
  const Part* u = points.at;
  const Part ones = T(1. / 2) * u[1], halves = T(1. / 6) * u[2], thirds = T(1. / 3) * u[3];
  return {{T(1. / 2) * (u[0] + thirds) - ones - halves, halves + thirds - ones,
           T(2) * thirds - ones - halves + u[4]}};
}

// Along both axes: from [From][From] numbers, `from` apart, to [To][To], `to` apart.
template <int From, int To, class Along>
FW_INLINE void along_both(const T* numbers, int64_t from, Along along, Part (&result)[To][To]) {
  Line<To> across[From];
  for (int i = 0; i < From; i++) {
    Line<From> line;
    for (int j = 0; j < From; j++) line.at[j] = load(numbers + (i * From + j) * from);
    across[i] = along(line);
  }
  for (int j = 0; j < To; j++) {
    Line<From> line;
    for (int i = 0; i < From; i++) line.at[i] = across[i].at[j];
    const Line<To> down = along(line);
    for (int i = 0; i < To; i++) result[i][j] = down.at[i];
  }
}

// Transforms taps [3, 3, count] to points [25, count].
inline void transform_taps(const T* taps, int64_t count, T* points) {
  for (int64_t n = 0; n < count; n += kLanes) {
    Part result[kPatch][kPatch];
    along_both<kTaps>(taps + n, count, points_of_taps, result);
    for (int i = 0; i < kPoints; i++)
      store(points + i * count + n, result[i / kPatch][i % kPatch]);
  }
}

// The transposed transform, for gradients.
inline void gather_taps(const T* points, int64_t count, T* taps) {
  for (int64_t n = 0; n < count; n += kLanes) {
    Part result[kTaps][kTaps];
    along_both<kPatch>(points + n, count, taps_of, result);
    for (int i = 0; i < kTaps * kTaps; i++)
      store(taps + i * count + n, result[i / kTaps][i % kTaps]);
  }
}

// A matrix product keeps a block of its result in registers: rows by kWide registers.
template <int K>
struct Block {
  static constexpr int kParts = K / kLanes;
  static constexpr int kWide = kParts % 4 == 0 && kRegisters == 32 ? 4 : kParts % 2 == 0 ? 2 : 1;
  static constexpr int kRows = kRegisters / kWide > 10 ? 6 : 5;
  static_assert(K % kLanes == 0, "channels fill registers");
};

// Calls body(N) with `count`, from 1 to kMost, as the compile-time number N.
template <int kMost, int N = 1, class Body>
FW_INLINE void with_constant(int64_t count, Body body) {
  if constexpr (N == kMost)
    body(std::integral_constant<int, N>());
  else if (count == N)
    body(std::integral_constant<int, N>());
  else
    with_constant<kMost, N + 1>(count, body);
}

// Calls body(first, N) for groups of N rows, a compile-time number. Groups have at most kRows rows
// and are as equal as possible.
template <int kRows, class Body>
FW_INLINE void in_groups(int64_t rows, Body body) {
  const int64_t groups = (rows + kRows - 1) / kRows;
  for (int64_t group = 0, first = 0, count; group < groups; group++, first += count) {
    count = (rows - first) / (groups - group);
    with_constant<kRows>(count, [&](auto N) __attribute__((always_inline)) { body(first, N); });
  }
}

// sum[n][i] += numbers[n * pitch + j * step] * rows[j][i], over `count` rows of K numbers each.
template <int K, int N, int kWide>
FW_INLINE void add_products(int64_t count, const T* numbers, int64_t pitch, int64_t step,
                            const T* rows, Part (&sum)[N][kWide]) {
  for (int64_t j = 0; j < count; j++) {
    Part row[kWide];
    for (int i = 0; i < kWide; i++) row[i] = load(rows + j * K + i * kLanes);
    for (int n = 0; n < N; n++)
      for (int i = 0; i < kWide; i++) sum[n][i] += row[i] * numbers[n * pitch + j * step];
  }
}

// products [25, tiles, K] = patches [25, tiles, C] taps [25, C, K]
template <int C, int K>
FW_APART void multiply(int64_t tiles, const T* patches, const T* taps, T* products) {
  constexpr int kWide = Block<K>::kWide;
  for (int point = 0; point < kPoints; point++)
    in_groups<Block<K>::kRows>(tiles, [&](int64_t first, auto N) __attribute__((always_inline)) {
      const int64_t row = point * tiles + first;
      for (int k = 0; k < K; k += kWide * kLanes) {
        Part sum[N()][kWide] = {};
        add_products<K>(C, patches + row * C, C, 1, taps + point * C * K + k, sum);
        for (int n = 0; n < N(); n++)
          for (int i = 0; i < kWide; i++)
            store(products + (row + n) * K + k + i * kLanes, sum[n][i]);
      }
    });
}

// taps [25, C, K] += patches^T [25, C, tiles] grads [25, tiles, K]
template <int C, int K>
FW_APART void multiply_back(int64_t tiles, const T* patches, const T* grads, T* taps) {
  constexpr int kWide = Block<K>::kWide;
  for (int point = 0; point < kPoints; point++)
    in_groups<Block<K>::kRows>(C, [&](int64_t first, auto N) __attribute__((always_inline)) {
      for (int k = 0; k < K; k += kWide * kLanes) {
        T* to = taps + (point * C + first) * K + k;
        Part sum[N()][kWide];
        for (int n = 0; n < N(); n++)
          for (int i = 0; i < kWide; i++) sum[n][i] = load(to + n * K + i * kLanes);
        add_products<K>(tiles, patches + point * tiles * C + first, 1, C,
                        grads + point * tiles * K + k, sum);
        for (int n = 0; n < N(); n++)
          for (int i = 0; i < kWide; i++) store(to + n * K + i * kLanes, sum[n][i]);
      }
    });
}

}  // namespace fastweights
