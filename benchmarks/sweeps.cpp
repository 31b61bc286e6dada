// Measures one pass over a 32 x 32 matrix of floats in the first-level cache: nanoseconds, the best
// of many passes. Run it before and after a change to kernels/include/matrix.h. Run it on a new
// processor to see whether its writes should be split, as on AMD's (see
// kernels/machinery/cpu_build.py):
//
//   for split in "" -DFASTWEIGHTS_SPLIT_WRITES; do
//     c++ -std=c++17 -O3 -w -mavx2 -mfma $split -Ikernels/include benchmarks/sweeps.cpp -o sweeps
//     ./sweeps
//   done
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "delta_memory.h"

using namespace fastweights;
using R = Row<T, P>;

constexpr int kSamples = 400, kPasses = 2000, kRows = 64;
alignas(64) static T keys[kRows][P], queries[kRows][P], values[kRows][P], answers[kRows][P];
static Matrix<T, P> matrix;

template <class Pass>
void time_of(const char* name, Pass pass) {
  double best = 1e9;
  for (int sample = 0; sample < kSamples; sample++) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kPasses; i++) pass(i % kRows);
    std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / kPasses);
  }
  std::printf("%-22s %6.1f ns\n", name, best);
}

int main() {
  for (int i = 0; i < kRows; i++)
    for (int j = 0; j < P; j++) {
      keys[i][j] = T(1) / P;
      queries[i][j] = T((i * j) % 3) / P;
      values[i][j] = T(0.1);
    }
  matrix.clear();
  volatile int64_t hidden = P;  // not a constant: a kernel gets its sizes at run time, too
  const int64_t rows = hidden;
#ifdef FASTWEIGHTS_SPLIT_WRITES
  std::puts("separate multiplication and addition:");
#else
  std::puts("fused multiply-add:");
#endif
  time_of("a read", [&](int i) {
    R answer;
    sweep<T, P, 0, 1>(matrix.row, rows, {}, {{{keys[i], &answer}}});
    answer.store(answers[i], P);
  });
  time_of("a read across", [&](int i) {
    read_across<T, P, P>(matrix.row, R::load(queries[i], P)).store(answers[i], P);
  });
  time_of("a write", [&](int i) {
    sweep<T, P, 1, 0>(matrix.row, rows, {{{keys[i], R::load(values[i], P)}}}, {});
  });
  time_of("a write, two reads", [&](int i) {
    R old, answer;
    sweep<T, P, 1, 2>(matrix.row, rows, {{{keys[i], R::load(values[i], P)}}},
                      {{{keys[i], &old}, {queries[i], &answer}}});
    (old + answer).store(answers[i], P);
  });
  time_of("two writes, a read", [&](int i) {
    R answer;
    sweep<T, P, 2, 1>(matrix.row, rows,
                      {{{keys[i], R::load(values[i], P)}, {queries[i], R::load(values[i], P)}}},
                      {{{keys[i], &answer}}});
    answer.store(answers[i], P);
  });
  time_of("four writes", [&](int i) {
    std::array<Write<T, P>, 4> writes;
    for (int w = 0; w < 4; w++) writes[w] = {keys[(i + w) % kRows], R::load(values[i], P)};
    matrix.write(rows, writes);
  });
}
