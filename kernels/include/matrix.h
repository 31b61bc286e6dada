// A small matrix in the L1 cache, and the single loop from which every kernel here is built.
#pragma once
#include <array>

#include "lanes.h"

namespace fastweights {

// `along` has one number for each row of the matrix, `row` one for each lane.
template <class T, int P>
struct Write {  // M += along row^T
  const T* along;
  Row<T, P> row;
};

template <class T, int P>
struct Read {  // sum = M^T along
  const T* along;
  Row<T, P>* sum;
};

// The factor by which a matrix is multiplied before it is written: a number, or none at all.
struct Whole {
  Whole() = default;
  explicit Whole(int) {}
};

template <class Rows>
FW_INLINE Rows faded(const Rows& rows, Whole) {
  return rows;
}

template <class Rows, class T>
FW_INLINE Rows faded(const Rows& rows, T keep) {
  return keep * rows;
}

// Parts of a row that one pass handles: a divisor of `all` such that `rows` rows of as many parts
// fit into the registers, beside the matrix and the numbers along it.
constexpr int parts_at_once(int all, int rows) {
  int parts = all;
  while (parts > 1 && (all % parts || parts * rows > kRegisters - 4)) parts--;
  return parts;
}

// Independent sums per read, at most 8 in all, which hide the latency of a multiply-add. There are
// fewer if they and the rows of the writes would not fit into the registers.
constexpr int chains(int parts, int writes, int reads) {
  int count = 4;
  while (count > 1 && (parts * reads * count > 8 ||
                       parts * (writes + reads * count) > kRegisters - 4))
    count /= 2;
  return count;
}

// The body of `sweep`, below. With kMoves, results go to other rows and `matrix` is unchanged.
template <bool kMoves = false, class T, int P, size_t W, size_t R, class Keep>
FW_INLINE void sweep_inline(Row<T, P>* __restrict matrix, int64_t rows,
                            const std::array<Write<T, P>, W>& writes,
                            const std::array<Read<T, P>, R>& reads, Keep keep,
                            Row<T, P>* __restrict other = nullptr) {
  using Part = typename Row<T, P>::Part;
  constexpr int kAll = Row<T, P>::kParts;
  constexpr int kBlock = parts_at_once(kAll, int(W + R));
  constexpr int kChains = chains(kBlock, int(W), int(R));
  Row<T, P>* const to = kMoves ? other : matrix;

  for (int first = 0; first < kAll; first += kBlock) {
    Part sums[R ? R : 1][kChains][kBlock] = {};
    auto visit = [&](int64_t j, int chain) __attribute__((always_inline)) {
      for (int i = 0; i < kBlock; i++) {
        Part m = faded(matrix[j].part[first + i], keep);
        for (size_t w = 0; w < W; w++)
          m = add_product(m, writes[w].row.part[first + i], writes[w].along[j]);
        if (W) to[j].part[first + i] = m;
        for (size_t r = 0; r < R; r++) sums[r][chain][i] += m * reads[r].along[j];
      }
    };
    int64_t j = 0;
    for (; j + kChains <= rows; j += kChains)
      for (int chain = 0; chain < kChains; chain++) visit(j + chain, chain);
    for (; j < rows; j++) visit(j, 0);
    for (size_t r = 0; r < R; r++)
      for (int i = 0; i < kBlock; i++) {
        Part total = sums[r][0][i];
        for (int chain = 1; chain < kChains; chain++) total += sums[r][chain][i];
        reads[r].sum->part[first + i] = total;
      }
  }
}

template <class T, int P, size_t W, size_t R, class Keep>
FW_APART void sweep_apart(Row<T, P>* __restrict matrix, int64_t rows,
                          const std::array<Write<T, P>, W>& writes,
                          const std::array<Read<T, P>, R>& reads, Keep keep) {
  sweep_inline(matrix, rows, writes, reads, keep);
}

// Decays the matrix, applies every write, then computes every read, in one pass over it. A kernel
// that delays the write of step t until the reads of step t + 1 touches its matrix once per step.
//
// Rows of several registers are swept in a separate function, where the sums get all the registers.
// Inside a long loop the compiler keeps some sums in memory, which is twice as slow.
template <class T, int P, size_t W, size_t R, class Keep = Whole>
FW_INLINE void sweep(Row<T, P>* __restrict matrix, int64_t rows,
                     const std::array<Write<T, P>, W>& writes,
                     const std::array<Read<T, P>, R>& reads, Keep keep = {}) {
  if constexpr (Row<T, P>::kParts > 2)
    sweep_apart(matrix, rows, writes, reads, keep);
  else
    sweep_inline(matrix, rows, writes, reads, keep);
}

// Like `sweep`, but leaves the matrix unchanged: the decayed and written rows go to `to`.
template <class T, int P, size_t W, size_t R, class Keep>
FW_APART void sweep_to(Row<T, P>* __restrict to, Row<T, P>* __restrict from, int64_t rows,
                       const std::array<Write<T, P>, W>& writes,
                       const std::array<Read<T, P>, R>& reads, Keep keep) {
  sweep_inline<true>(from, rows, writes, reads, keep, to);
}

// M times `along`, as a dot product for each row, without a transposed copy of M. Reads all rows,
// including the padding.
template <class T, int P, int Rows>
FW_INLINE Row<T, Rows> read_across(const Row<T, P>* matrix, const Row<T, P>& along) {
  using Part = typename Row<T, P>::Part;
  constexpr int kParts = Row<T, P>::kParts, kWidth = Row<T, P>::kWidth;
  static_assert(kWidth == Row<T, Rows>::kWidth, "rows and columns lie in registers of one width");
  Row<T, Rows> answer;
  for (int group = 0; group < Row<T, Rows>::kParts; group++) {
    const Row<T, P>* rows = matrix + group * kWidth;
    Part products[kWidth];
#pragma GCC unroll 16
    for (int lane = 0; lane < kWidth; lane++) {
      Part product = rows[lane].part[0] * along.part[0];
      for (int i = 1; i < kParts; i++) product += rows[lane].part[i] * along.part[i];
      products[lane] = product;
    }
    answer.part[group] = sum_each<kWidth>(products);
  }
  return answer;
}

template <class T, int P, int Rows = P>
struct Matrix {
  Row<T, P> row[Rows];  // zero beyond the live rows

  void clear() { clear_from(0); }

  void clear_from(int64_t first) {
    for (int64_t j = first; j < Rows; j++) row[j] = Row<T, P>::fill(T(0));
  }

  void load(const T* from, int64_t rows, int64_t columns, int64_t stride) {
    for (int64_t j = 0; j < rows; j++) row[j] = Row<T, P>::load(from + j * stride, columns);
    clear_from(rows);
  }

  // Stores M + along values^T, decayed, and leaves M unchanged.
  template <class Keep>
  void store_written(T* to, int64_t rows, int64_t columns, int64_t stride,
                     const Row<T, Rows>& along, const Row<T, P>& values, Keep keep) const {
    for (int64_t j = 0; j < rows; j++)
      faded(row[j] + along[j] * values, keep).store(to + j * stride, columns);
  }

  // Loads the transpose of the matrix in memory; `rows` and `columns` are those of this matrix.
  FW_APART void load_transposed(const T* from, int64_t rows, int64_t columns, int64_t stride) {
    using Line = Row<T, Rows>;
    constexpr int kWidth = Line::kWidth;
    static_assert(kWidth == Row<T, P>::kWidth, "rows and columns lie in registers of one width");
    for (int block = 0; block < Row<T, P>::kParts; block++) {
      const int64_t first = block * kWidth;
      Line lines[kWidth];
      for (int i = 0; i < kWidth; i++)
        lines[i] = first + i < columns ? Line::load(from + (first + i) * stride, rows)
                                       : Line::fill(T(0));
      for (int part = 0; part < Line::kParts; part++) {
        typename Line::Part square[kWidth];
        for (int i = 0; i < kWidth; i++) square[i] = lines[i].part[part];
        transpose<kWidth>(square);
        for (int i = 0; i < kWidth; i++) row[part * kWidth + i].part[block] = square[i];
      }
    }
  }

  FW_INLINE Row<T, P> read(int64_t rows, const Row<T, P>& along) {
    Row<T, P> answer;
    sweep<T, P, 0, 1>(row, rows, {}, {{{along.data(), &answer}}});
    return answer;
  }

  template <size_t W>
  FW_INLINE void write(int64_t rows, const std::array<Write<T, P>, W>& writes) {
    sweep<T, P, W, 0>(row, rows, writes, {});
  }
};

}  // namespace fastweights
