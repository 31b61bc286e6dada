// Gradients of weights shared by all steps: sums of outer products, in a fixed order.
#pragma once
#include "call.h"
#include "lanes.h"

namespace fastweights {

// to[r][c] = sum over t of along(t)[r] * row(t)[c], for as many rows at a time as fit in registers.
template <class T, int P, class Along, class RowAt>
FW_APART void outer_sum(int64_t time, int64_t rows, int64_t columns, Along along, RowAt row_at,
                        T* to) {
  constexpr int kFit = (kRegisters - 4) / Row<T, P>::kParts;
  constexpr int kRows = kFit > 4 ? 4 : (kFit > 1 ? 2 : 1);
  for (int64_t r = 0; r < rows; r += kRows) {
    int64_t live = rows - r < kRows ? rows - r : kRows;  // beyond it `along` has zeros
    Row<T, P> sums[kRows];
    for (auto& sum : sums) sum = Row<T, P>::fill(T(0));
    for (int64_t t = 0; t < time; t++) {
      const Row<T, P>& row = row_at(t);
      const T* scale = along(t).data() + r;
      for (int i = 0; i < kRows; i++) sums[i] = sums[i] + scale[i] * row;
    }
    for (int64_t i = 0; i < live; i++) sums[i].store(to + (r + i) * columns, columns);
  }
}

// total[i] = sum over b of partial[b * stride + i]; one thread sums each element, in order.
template <class T>
void sum_over_batch(int64_t batch, int64_t stride, int64_t count, const T* partial, T* total,
                    int64_t threads) {
  constexpr int64_t kBlock = 1024;
  parallel_for((count + kBlock - 1) / kBlock, threads, [&](int64_t block) {
    int64_t begin = block * kBlock, end = begin + kBlock < count ? begin + kBlock : count;
    for (int64_t i = begin; i < end; i++) total[i] = T(0);
    for (int64_t b = 0; b < batch; b++)
      for (int64_t i = begin; i < end; i++) total[i] += partial[b * stride + i];
  });
}

}  // namespace fastweights
