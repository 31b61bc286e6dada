// The LSTM's recurrence on CPUs, for any hidden size: blocks of batch columns, each through all of
// time on its own thread; the weights are read where they lie, forward along rows, backward across.
#include <algorithm>
#include <vector>

#include "call.h"
#include "elementwise.h"

using namespace fastweights;

constexpr int L = kRegisterBytes / int(sizeof(T));  // lanes in a register
constexpr int kBatch = 4;                           // batch columns in a block
constexpr int kTile = kRegisters / 8;               // registers along the other axis of a tile
using Lane = Row<T, L>;

static int64_t padded(int64_t size) { return (size + L - 1) / L * L; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct LstmSizes {
  int64_t time, batch, hidden, threads;

  explicit LstmSizes(Call& call)
      : time(call.integer()), batch(call.integer()), hidden(call.integer()),
        threads(call.integer()) {}

  // Calls body(first column, N) with N, the number of columns, a compile-time 4 or 1.
  template <class Body>
  void for_each_block(Body body) const {
    int64_t whole = batch / kBatch, rest = batch % kBatch;
    parallel_for(whole + rest, threads, [&](int64_t n) {
      if (n < whole)
        body(n * kBatch, std::integral_constant<int, kBatch>());
      else
        body(whole * kBatch + n - whole, std::integral_constant<int, 1>());
    });
  }
};

// to[n][j] += sum over d of h[n][d] W[j][d]; the rows of h are padded with zeros.
template <int N>
static void add_dots(const T* h, int64_t h_stride, const Tensor<const T>& W, int64_t D, T* to) {
  for (int64_t j = 0; j < 4 * D; j += kTile) {
    Lane sums[N][kTile];
    for (auto& row : sums)
      for (auto& sum : row) sum = Lane::fill(T(0));
    auto visit = [&](int64_t d, int64_t live) __attribute__((always_inline)) {
      Lane weights[kTile];
      for (int c = 0; c < kTile; c++) weights[c] = Lane::load(W.at(j + c, d), live);
      for (int n = 0; n < N; n++) {
        Lane hidden = Lane::load(h + n * h_stride + d, L);
        for (int c = 0; c < kTile; c++) sums[n][c] = sums[n][c] + weights[c] * hidden;
      }
    };
    int64_t d = 0;
    for (; d + L <= D; d += L) visit(d, L);
    if (d < D) visit(d, D - d);
    for (int n = 0; n < N; n++)
      for (int c = 0; c < kTile; c++) to[n * 4 * D + j + c] += sum(sums[n][c]);
  }
}

// to[n][d] (+)= sum over j < count of scale(j)[n] * rows[j][d], the sums kept in registers.
template <int N, bool kAdd, class Scale, class RowAt>
static void combine(int64_t count, int64_t D, Scale scale, RowAt row, T* to, int64_t to_stride) {
  auto tile = [&](int64_t d, auto parts, int64_t live) __attribute__((always_inline)) {
    Lane sums[N][parts()];
    for (int n = 0; n < N; n++)
      for (int i = 0; i < parts(); i++)
        sums[n][i] = kAdd ? Lane::load(to + n * to_stride + d + i * L, live) : Lane::fill(T(0));
    for (int64_t j = 0; j < count; j++) {
      Lane values[parts()];
      for (int i = 0; i < parts(); i++) values[i] = Lane::load(row(j) + d + i * L, live);
      for (int n = 0; n < N; n++)
        for (int i = 0; i < parts(); i++) sums[n][i] = sums[n][i] + scale(n, j) * values[i];
    }
    for (int n = 0; n < N; n++)
      for (int i = 0; i < parts(); i++) sums[n][i].store(to + n * to_stride + d + i * L, live);
  };
  int64_t d = 0;
  for (; d + kTile * L <= D; d += kTile * L) tile(d, std::integral_constant<int, kTile>(), L);
  for (; d < D; d += L) tile(d, std::integral_constant<int, 1>(), least(L, D - d));
}

FW_EXPORT void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  LstmSizes size(call);
  auto z = call.tensor<const T>(), W = call.tensor<const T>();
  auto is_first = call.tensor<const bool>();
  auto initial_hidden = call.tensor<const T>(), initial_cell = call.tensor<const T>();
  auto y = call.tensor<T>(), final_hidden = call.tensor<T>(), final_cell = call.tensor<T>();
  auto saved_gates = call.tensor<T>(), saved_hidden = call.tensor<T>();
  auto saved_cell_before = call.tensor<T>(), saved_cell = call.tensor<T>();
  const int64_t D = size.hidden, stride = padded(D);

  size.for_each_block([&](int64_t b, auto N) {
    static thread_local std::vector<T> space;
    space.assign(N * (2 * stride + 4 * D), T(0));
    T *hidden = space.data(), *cell = hidden + N * stride, *gates = cell + N * stride;
    for (int n = 0; n < N(); n++) {
      std::memcpy(hidden + n * stride, initial_hidden.at(b + n), D * sizeof(T));
      std::memcpy(cell + n * stride, initial_cell.at(b + n), D * sizeof(T));
    }
    for (int64_t t = 0; t < size.time; t++) {
      for (int n = 0; n < N(); n++) {
        T *h = hidden + n * stride, *c = cell + n * stride;
        if (*is_first.at(t, b + n))
          for (int64_t d = 0; d < D; d++) h[d] = c[d] = T(0);
        std::memcpy(gates + n * 4 * D, z.at(t, b + n), 4 * D * sizeof(T));
        if (!saved_gates) continue;
        std::memcpy(saved_hidden.at(t, b + n), h, D * sizeof(T));
        std::memcpy(saved_cell_before.at(t, b + n), c, D * sizeof(T));
      }
      add_dots<N()>(hidden, stride, W, D, gates);
      for (int n = 0; n < N(); n++) {
        T *h = hidden + n * stride, *c = cell + n * stride, *gate = gates + n * 4 * D;
        for (int64_t d = 0; d < D; d += L) {
          int64_t live = least(L, D - d);
          Lane i = sigmoid(Lane::load(gate + d, live)), f = sigmoid(Lane::load(gate + D + d, live));
          Lane g = tanh(Lane::load(gate + 2 * D + d, live));
          Lane o = sigmoid(Lane::load(gate + 3 * D + d, live));
          Lane new_cell = f * Lane::load(c + d, live) + i * g, new_hidden = o * tanh(new_cell);
          new_cell.store(c + d, live);
          new_hidden.store(h + d, live);
          new_hidden.store(y.at(t, b + n) + d, live);
          if (!saved_gates) continue;
          T* kept = saved_gates.at(t, b + n) + d;
          i.store(kept, live), f.store(kept + D, live);
          g.store(kept + 2 * D, live), o.store(kept + 3 * D, live);
          new_cell.store(saved_cell.at(t, b + n) + d, live);
        }
      }
    }
    for (int n = 0; n < N(); n++) {
      std::memcpy(final_hidden.at(b + n), hidden + n * stride, D * sizeof(T));
      std::memcpy(final_cell.at(b + n), cell + n * stride, D * sizeof(T));
    }
  });
}

// One column's step back: dz from dh and dc; leaves in dc what goes on to the step before.
static void through_gates(const T* gate, const T* before, const T* cell, const T* dh, T* dc, T* dz,
                          int64_t D) {
  for (int64_t d = 0; d < D; d += L) {
    int64_t live = least(L, D - d);
    Lane i = Lane::load(gate + d, live), f = Lane::load(gate + D + d, live);
    Lane g = Lane::load(gate + 2 * D + d, live), o = Lane::load(gate + 3 * D + d, live);
    Lane one = Lane::fill(T(1)), squashed = tanh(Lane::load(cell + d, live));
    Lane grad = Lane::load(dh + d, live);
    Lane dcell = Lane::load(dc + d, live) + grad * o * (one - squashed * squashed);
    (dcell * g * i * (one - i)).store(dz + d, live);
    (dcell * Lane::load(before + d, live) * f * (one - f)).store(dz + D + d, live);
    (dcell * i * (one - g * g)).store(dz + 2 * D + d, live);
    (grad * squashed * o * (one - o)).store(dz + 3 * D + d, live);
    (dcell * f).store(dc + d, live);
  }
}

static void copy_or_clear(T* to, const T* from, int64_t count) {
  if (from)
    std::memcpy(to, from, count * sizeof(T));
  else
    std::fill_n(to, count, T(0));
}

FW_EXPORT void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  LstmSizes size(call);
  call.tensor<const T>();
  auto W = call.tensor<const T>();
  auto is_first = call.tensor<const bool>();
  for (int state = 0; state < 2; state++) call.tensor<const T>();
  auto gates = call.tensor<const T>(), hidden_before = call.tensor<const T>();
  auto cell_before = call.tensor<const T>(), cell = call.tensor<const T>();
  auto grad_y = call.tensor<const T>();
  auto grad_final_hidden = call.tensor<const T>(), grad_final_cell = call.tensor<const T>();
  auto grad_z = call.tensor<T>(), grad_W = call.tensor<T>();
  auto grad_hidden = call.tensor<T>(), grad_cell = call.tensor<T>();
  const int64_t D = size.hidden;

  size.for_each_block([&](int64_t b, auto N) {
    static thread_local std::vector<T> space;
    space.resize(N * 2 * D);
    T *dh = space.data(), *dc = dh + N * D;
    for (int n = 0; n < N(); n++) {
      copy_or_clear(dh + n * D, grad_final_hidden.at_or_null(b + n), D);
      copy_or_clear(dc + n * D, grad_final_cell.at_or_null(b + n), D);
    }
    for (int64_t t = size.time - 1; t >= 0; t--) {
      for (int n = 0; n < N(); n++) {
        const T* dy = grad_y.at(t, b + n);
        for (int64_t d = 0; d < D; d++) dh[n * D + d] += dy[d];
        through_gates(gates.at(t, b + n), cell_before.at(t, b + n), cell.at(t, b + n), dh + n * D,
                      dc + n * D, grad_z.at(t, b + n), D);
      }
      const T* dz = grad_z.at(t, b);
      const int64_t next = grad_z.stride[1];
      combine<N(), false>(
          4 * D, D, [=](int n, int64_t j) { return dz[n * next + j]; },
          [&](int64_t j) { return W.at(j); }, dh, D);
      for (int n = 0; n < N(); n++)
        if (*is_first.at(t, b + n))
          for (int64_t d = 0; d < D; d++) dh[n * D + d] = dc[n * D + d] = T(0);
    }
    for (int n = 0; n < N(); n++) {
      std::memcpy(grad_hidden.at(b + n), dh + n * D, D * sizeof(T));
      std::memcpy(grad_cell.at(b + n), dc + n * D, D * sizeof(T));
    }
  });

  // dW = sum over (t, b) of dz h^T, by blocks of rows of W, the sum's order fixed.
  constexpr int64_t kChunk = 64;
  const int64_t rows = size.time * size.batch;
  std::memset(grad_W.data, 0, 4 * D * D * sizeof(T));
  parallel_for(D, size.threads, [&](int64_t block) {
    const int64_t j = 4 * block;
    for (int64_t begin = 0; begin < rows; begin += kChunk) {
      const T* dz = grad_z.data + begin * 4 * D + j;
      combine<4, true>(
          least(kChunk, rows - begin), D, [=](int n, int64_t r) { return dz[r * 4 * D + n]; },
          [&](int64_t r) { return hidden_before.data + (begin + r) * D; }, grad_W.at(j), D);
    }
  });
}
