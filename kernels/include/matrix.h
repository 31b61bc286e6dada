// A small matrix in the first-level cache, and the one loop that every kernel here is made of.
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

// Applies every write, then answers every read, in one pass over the matrix. A kernel that holds
// back the write of step t until the reads of step t + 1 touches its matrix once a step.
template <class T, int P, size_t W, size_t R>
FW_INLINE void sweep(Row<T, P>* __restrict matrix, int64_t rows,
                     const std::array<Write<T, P>, W>& writes,
                     const std::array<Read<T, P>, R>& reads) {
  using Part = typename Row<T, P>::Part;
  constexpr int kAll = Row<T, P>::kParts;
  // Parts handled at once: their sums and written rows stay in registers, and they share the loads
  // of `along`.
  constexpr int kBlock = kAll < 4 ? kAll : 4;
  // Independent sums per read, which hide the latency of a multiply-add.
  constexpr int kChains = kBlock * int(R) <= 2 ? 4 : (kBlock * int(R) <= 4 ? 2 : 1);

  for (int first = 0; first < kAll; first += kBlock) {
    Part sums[R ? R : 1][kChains][kBlock] = {};
    auto visit = [&](int64_t j, int chain) __attribute__((always_inline)) {
      for (int i = 0; i < kBlock; i++) {
        Part m = matrix[j].part[first + i];
        for (size_t w = 0; w < W; w++) m += writes[w].row.part[first + i] * writes[w].along[j];
        if (W) matrix[j].part[first + i] = m;
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

// As `sweep` with one read; returns M across too, so that no transposed copy of M is needed.
template <class T, int P, size_t W>
FW_INLINE Row<T, P> sweep_across(Row<T, P>* __restrict matrix, int64_t rows,
                                 const std::array<Write<T, P>, W>& writes, const Read<T, P>& read,
                                 const Row<T, P>& across) {
  using Part = typename Row<T, P>::Part;
  constexpr int kParts = Row<T, P>::kParts, kWidth = Row<T, P>::kWidth;
  constexpr int kChains = kParts <= 2 ? 2 : 1;
  Part sums[kChains][kParts] = {};
  Row<T, P> answer = Row<T, P>::fill(T(0));
  for (int block = 0; block < kParts; block++) {
    Part products[kWidth];
    auto visit = [&](int lane) __attribute__((always_inline)) {
      const int64_t j = block * kWidth + lane;
      Part product{};
      for (int i = 0; i < kParts; i++) {
        Part m = matrix[j].part[i];
        for (size_t w = 0; w < W; w++) m += writes[w].row.part[i] * writes[w].along[j];
        matrix[j].part[i] = m;
        sums[lane % kChains][i] += m * read.along[j];
        product += m * across.part[i];
      }
      products[lane] = product;
    };
    const int64_t live = rows - block * kWidth;
    if (live <= 0) break;
#pragma GCC unroll 16
    for (int lane = 0; lane < kWidth; lane++) {
      if (lane < live)
        visit(lane);
      else
        products[lane] = Part{};
    }
    answer.part[block] = sum_each<kWidth>(products);
  }
  for (int i = 0; i < kParts; i++) {
    read.sum->part[i] = sums[0][i];
    for (int chain = 1; chain < kChains; chain++) read.sum->part[i] += sums[chain][i];
  }
  return answer;
}

template <class T, int P>
struct Matrix {
  Row<T, P> row[P];

  void clear(int64_t rows) {
    for (int64_t j = 0; j < rows; j++) row[j] = Row<T, P>::fill(T(0));
  }

  void load(const T* from, int64_t rows, int64_t columns, int64_t stride) {
    for (int64_t j = 0; j < rows; j++) row[j] = Row<T, P>::load(from + j * stride, columns);
  }

  // Stores M + along values^T, and leaves M as it is.
  void store_written(T* to, int64_t rows, int64_t columns, int64_t stride,
                     const Row<T, P>& along, const Row<T, P>& values) const {
    for (int64_t j = 0; j < rows; j++) (row[j] + along[j] * values).store(to + j * stride, columns);
  }

  // Loads the transpose of what lies in memory: `rows` and `columns` are those of this matrix.
  void load_transposed(const T* from, int64_t rows, int64_t columns, int64_t stride) {
    clear(rows);
    for (int64_t i = 0; i < columns; i++)
      for (int64_t j = 0; j < rows; j++) row[j].data()[i] = from[i * stride + j];
  }

  FW_INLINE Row<T, P> read(int64_t rows, const Row<T, P>& along) {
    Row<T, P> answer;
    sweep<T, P, 0, 1>(row, rows, {}, {{{along.data(), &answer}}});
    return answer;
  }

  FW_INLINE void write(int64_t rows, const Row<T, P>& along, const Row<T, P>& values) {
    sweep<T, P, 1, 0>(row, rows, {{{along.data(), values}}}, {});
  }
};

}  // namespace fastweights
