// The LSTM's recurrence on CPUs, for any hidden size. Each block of batch columns runs through the
// whole unroll on its own thread. A product with the weights is computed in tiles of registers:
// four batch columns by some rows of W forward, in place, and by some columns of W backward, from a
// packed copy. Every piece of W serves all columns of a block while it is in the cache.
#include "call.h"
#include "elementwise.h"

using namespace fastweights;

constexpr int L = kRegisterBytes / int(sizeof(T));  // lanes in a register
constexpr int kBatch = 4;                           // rows of a tile: batch columns, or rows of dW
constexpr int kTile = kRegisters / 8;               // registers along the other axis of a tile
constexpr int kWide = kTile * L;                    // numbers along that axis
constexpr int kBlock = 32;                          // maximum number of batch columns in a block
constexpr int kChunk = 128;                         // terms of a sum that are added at once
using Lane = Row<T, L>;

static int64_t rounded_up(int64_t size, int64_t to) { return (size + to - 1) / to * to; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a < b ? b : a; }

// Calls body(first, N) for tiles of `count` rows; N, a tile's rows, is kBatch or 1 (compile time).
template <class Body>
static void in_tiles(int64_t count, Body body) {
  int64_t first = 0;
  for (; first + kBatch <= count; first += kBatch)
    body(first, std::integral_constant<int, kBatch>());
  for (; first < count; first++) body(first, std::integral_constant<int, 1>());
}

struct LstmSizes {
  int64_t time, batch, hidden, threads;

  explicit LstmSizes(Call& call)
      : time(call.integer()), batch(call.integer()), hidden(call.integer()),
        threads(call.integer()) {}

  // Calls body(first column, number of columns).
  template <class Body>
  void for_each_block(Body body) const {
    int64_t share = rounded_up((batch + threads - 1) / threads, kBatch);
    int64_t width = least(most(share, kBatch), kBlock);
    parallel_for((batch + width - 1) / width, threads,
                 [&](int64_t n) { body(n * width, least(width, batch - n * width)); });
  }
};

// Per-thread memory of `size` numbers for one purpose, kept between calls.
template <int purpose>
static T* memory(int64_t size) {
  static thread_local Buffer<T> numbers;
  return numbers.at_least(size);
}

// to[n][j] += sum over d of h[n][d] W[j][d]; the rows of h are padded with zeros.
static void add_dots(const T* h, int64_t columns, const Tensor<const T>& W, int64_t D, T* to) {
  const int64_t stride = rounded_up(D, L);
  for (int64_t j = 0; j < 4 * D; j += kTile)
    in_tiles(columns, [&](int64_t first, auto N) __attribute__((always_inline)) {
      Lane sums[N()][kTile];
      for (auto& row : sums)
        for (auto& sum : row) sum = Lane::fill(T(0));
      auto visit = [&](int64_t d, int64_t live) __attribute__((always_inline)) {
        Lane weights[kTile];
        for (int c = 0; c < kTile; c++) weights[c] = Lane::load(W.at(j + c, d), live);
        for (int n = 0; n < N(); n++) {
          Lane hidden = Lane::load(h + (first + n) * stride + d, L);
          for (int c = 0; c < kTile; c++) sums[n][c] = sums[n][c] + weights[c] * hidden;
        }
      };
      int64_t d = 0;
      for (; d + L <= D; d += L) visit(d, L);
      if (d < D) visit(d, D - d);
      for (int n = 0; n < N(); n++)
        for (int c = 0; c < kTile; c++) to[(first + n) * 4 * D + j + c] += sum(sums[n][c]);
    });
}

// Packs rows[count][D], `stride` numbers apart, as consecutive strips [count][kWide]; the last
// strip is padded with zeros.
static void pack(const T* rows, int64_t stride, int64_t count, int64_t D, T* strips) {
  for (int64_t d = 0; d < D; d += kWide, strips += count * kWide)
    for (int64_t j = 0; j < count; j++) {
      T* to = strips + j * kWide;
      std::memcpy(to, rows + j * stride + d, least(kWide, D - d) * sizeof(T));
      for (int64_t i = least(kWide, D - d); i < kWide; i++) to[i] = T(0);
    }
}

// to[n][i] += sum over j < count of scale(n, j) * strip[j][i], for i < width.
template <int N, class Scale>
static void add_products(int64_t count, Scale scale, const T* strip, T* to, int64_t stride,
                         int64_t width) {
  auto tile = [&](auto is_whole) __attribute__((always_inline)) {
    auto live = [&](int i) { return is_whole() ? L : most(0, least(width - i * L, L)); };
    Lane sums[N][kTile];
    for (int n = 0; n < N; n++)
      for (int i = 0; i < kTile; i++) sums[n][i] = Lane::load(to + n * stride + i * L, live(i));
    for (int64_t j = 0; j < count; j++) {
      Lane values[kTile];
      for (int i = 0; i < kTile; i++) values[i] = Lane::load(strip + j * kWide + i * L, L);
      for (int n = 0; n < N; n++)
        for (int i = 0; i < kTile; i++) sums[n][i] = sums[n][i] + scale(n, j) * values[i];
    }
    for (int n = 0; n < N; n++)
      for (int i = 0; i < kTile; i++) sums[n][i].store(to + n * stride + i * L, live(i));
  };
  width >= kWide ? tile(std::true_type()) : tile(std::false_type());
}

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  LstmSizes size(call);
  auto z = call.tensor<const T>(), W = call.tensor<const T>();
  auto is_first = call.tensor<const bool>();
  auto initial_hidden = call.tensor<const T>(), initial_cell = call.tensor<const T>();
  auto y = call.tensor<T>(), final_hidden = call.tensor<T>(), final_cell = call.tensor<T>();
  auto saved_gates = call.tensor<T>(), saved_hidden = call.tensor<T>();
  auto saved_cell_before = call.tensor<T>(), saved_cell = call.tensor<T>();
  const int64_t D = size.hidden, stride = rounded_up(D, L);

  size.for_each_block([&](int64_t b, int64_t columns) {
    T* hidden = memory<0>(columns * (2 * stride + 4 * D));
    T *cell = hidden + columns * stride, *gates = cell + columns * stride;
    std::memset(hidden, 0, (gates - hidden) * sizeof(T));
    for (int64_t n = 0; n < columns; n++) {
      std::memcpy(hidden + n * stride, initial_hidden.at(b + n), D * sizeof(T));
      std::memcpy(cell + n * stride, initial_cell.at(b + n), D * sizeof(T));
    }
    for (int64_t t = 0; t < size.time; t++) {
      for (int64_t n = 0; n < columns; n++) {
        T *h = hidden + n * stride, *c = cell + n * stride;
        if (*is_first.at(t, b + n))
          for (int64_t d = 0; d < D; d++) h[d] = c[d] = T(0);
        std::memcpy(gates + n * 4 * D, z.at(t, b + n), 4 * D * sizeof(T));
        if (!saved_gates) continue;
        std::memcpy(saved_hidden.at(t, b + n), h, D * sizeof(T));
        std::memcpy(saved_cell_before.at(t, b + n), c, D * sizeof(T));
      }
      add_dots(hidden, columns, W, D, gates);
      for (int64_t n = 0; n < columns; n++) {
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
    for (int64_t n = 0; n < columns; n++) {
      std::memcpy(final_hidden.at(b + n), hidden + n * stride, D * sizeof(T));
      std::memcpy(final_cell.at(b + n), cell + n * stride, D * sizeof(T));
    }
  });
}

// One step back for one batch column: dz from dh and dc; leaves in dc the earlier step's gradient.
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
    std::memset(to, 0, count * sizeof(T));
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
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

  const int64_t strips = (D + kWide - 1) / kWide;

  T* packed = memory<1>(4 * D * strips * kWide);
  pack(W.data, W.stride[0], 4 * D, D, packed);
  size.for_each_block([&](int64_t b, int64_t columns) {
    T *dh = memory<0>(columns * 2 * D), *dc = dh + columns * D;
    for (int64_t n = 0; n < columns; n++) {
      copy_or_clear(dh + n * D, grad_final_hidden.at_or_null(b + n), D);
      copy_or_clear(dc + n * D, grad_final_cell.at_or_null(b + n), D);
    }
    for (int64_t t = size.time - 1; t >= 0; t--) {
      for (int64_t n = 0; n < columns; n++) {
        const T* dy = grad_y.at(t, b + n);
        for (int64_t d = 0; d < D; d++) dh[n * D + d] += dy[d];
        through_gates(gates.at(t, b + n), cell_before.at(t, b + n), cell.at(t, b + n), dh + n * D,
                      dc + n * D, grad_z.at(t, b + n), D);
      }
      std::memset(dh, 0, columns * D * sizeof(T));
      for (int64_t d = 0; d < D; d += kWide)
        for (int64_t j = 0; j < 4 * D; j += kChunk)
          in_tiles(columns, [&](int64_t n, auto N) {
            const T* dz = grad_z.at(t, b + n) + j;
            const int64_t next = grad_z.stride[1];
            add_products<N()>(
                least(kChunk, 4 * D - j), [=](int n, int64_t i) { return dz[n * next + i]; },
                packed + d * 4 * D + j * kWide, dh + n * D + d, D, D - d);
          });
      for (int64_t n = 0; n < columns; n++)
        if (*is_first.at(t, b + n))
          for (int64_t d = 0; d < D; d++) dh[n * D + d] = dc[n * D + d] = T(0);
    }
    for (int64_t n = 0; n < columns; n++) {
      std::memcpy(grad_hidden.at(b + n), dh + n * D, D * sizeof(T));
      std::memcpy(grad_cell.at(b + n), dc + n * D, D * sizeof(T));
    }
  });

  // dW = sum over (t, b) of dz h^T: a thread has its own rows of W and copies h and dz in chunks.
  const int64_t rows = size.time * size.batch, parts = least(size.threads, D);
  parallel_for(parts, size.threads, [&](int64_t part) {
    const int64_t begin = part * D / parts, end = (part + 1) * D / parts;  // rows, four at a time
    T* h = memory<0>(kChunk * (strips * kWide + kBatch * (end - begin)));
    T* dz = h + kChunk * strips * kWide;
    std::memset(grad_W.at(4 * begin), 0, 4 * (end - begin) * D * sizeof(T));
    for (int64_t row = 0; row < rows; row += kChunk) {
      const int64_t count = least(kChunk, rows - row);
      pack(hidden_before.data + row * D, D, count, D, h);
      for (int64_t r = 0; r < count; r++)
        for (int64_t j = begin; j < end; j++)
          std::memcpy(dz + ((j - begin) * count + r) * kBatch,
                      grad_z.data + (row + r) * 4 * D + 4 * j, kBatch * sizeof(T));
      for (int64_t d = 0; d < D; d += kWide)
        for (int64_t j = begin; j < end; j++) {
          const T* four = dz + (j - begin) * count * kBatch;
          add_products<kBatch>(
              count, [=](int n, int64_t r) { return four[r * kBatch + n]; }, h + d * count,
              grad_W.at(4 * j) + d, D, D - d);
        }
    }
  });
}
