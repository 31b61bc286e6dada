// Splits a slow net's rows into parts, each with its own map, in one pass forward and one backward.
// Vectors have any length here, so the maps are implemented again: those in feature_maps.h are for
// rows that fit entirely in registers.
#include "call.h"
#include "feature_maps.h"

using namespace fastweights;

constexpr int kLanes = kRegisterBytes / int(sizeof(T));  // per register
constexpr int64_t kTask = 16384;                         // numbers per task of a thread

// The register type for vectors of a given size. Vectors shorter than the longest register use one
// of their own length, because filling a longer one takes several times as long as the computation.
template <class Size>
struct Register {
  using type = Row<T, kLanes>;
};

template <int64_t size>
struct Register<std::integral_constant<int64_t, size>> {
  using type = Row<T, (size < kLanes ? size : kLanes)>;
};

template <class Size>
using Lane = typename Register<Size>::type;

// FeatureMap and the strengths' maps, in the order of MAPS (__init__.py).
enum class Map : int64_t {
  softmax, elu_sum, elu, identity, unit, silu_unit, sigmoid, double_sigmoid
};

// `count` consecutive vectors of `size` numbers.
struct Part {
  int64_t count, size;
  Map map;
};

// Calls body(i, number of live lanes in the register that starts at i, the mask of these lanes).
template <class Size, class Body>
static FW_INLINE void each(Size size, Body body) {
  constexpr int L = Lane<Size>::kWidth;
  int64_t i = 0;
  for (; i + L <= size; i += L) body(i, std::integral_constant<int, L>(), Lane<Size>::fill(T(1)));
  if (i < size) body(i, size - i, live_lanes<T, L>(size - i));
}

// Calls body(size), with the usual sizes as compile-time constants: for so few numbers, loop
// overhead costs as much as the arithmetic.
template <class Body>
static FW_INLINE void with_size(int64_t size, Body body) {
  switch (size) {
    case 4: return body(std::integral_constant<int64_t, 4>());
    case 8: return body(std::integral_constant<int64_t, 8>());
    case 16: return body(std::integral_constant<int64_t, 16>());
    case 32: return body(std::integral_constant<int64_t, 32>());
    case 64: return body(std::integral_constant<int64_t, 64>());
    default: return body(size);
  }
}

struct Parts {
  int64_t rows, width = 0, number;
  Buffer<Part> parts;
  int64_t threads;

  explicit Parts(Call& call) : rows(call.integer()), number(call.integer()), parts(number) {
    for (int64_t p = 0; p < number; p++) {
      Part& part = parts[p];
      part.count = call.integer(), part.size = call.integer(), part.map = Map(call.integer());
      width += part.count * part.size;
    }
    threads = call.integer();
  }

  // Calls body(part, a vector's offset in all rows, its offset in all rows of its part, its size).
  template <class Body>
  void for_each_vector(Body body) {
    const int64_t share = width < kTask ? kTask / width : 1, tasks = (rows + share - 1) / share;
    parallel_for(tasks, tasks > 1 ? threads : 1, [&](int64_t task) {
      const int64_t end = (task + 1) * share < rows ? (task + 1) * share : rows;
      for (int64_t row = task * share; row < end; row++)
        for (int64_t p = 0, at = row * width; p < number; p++) {
          const Part part = parts[p];
          int64_t own = row * part.count * part.size;
          with_size(part.size, [&](auto size) __attribute__((always_inline)) {
            for (int64_t n = 0; n < part.count; n++, at += size, own += size)
              body(p, at, own, size);
          });
        }
    });
  }
};

template <class R>
static FW_INLINE R positive(const T* x, int64_t live, const R& mask) {
  return activate(FeatureMap::elu, R::load(x, live), mask);
}

template <class Size>
static FW_INLINE void softmax(const T* x, T* y, Size size) {
  Lane<Size> top = Lane<Size>::fill(T(-__builtin_inf())), total = Lane<Size>::fill(T(0));
  each(size, [&](int64_t i, auto live, const Lane<Size>& mask) __attribute__((always_inline)) {
    Lane<Size> part = select(mask, Lane<Size>::load(x + i, live), T(-__builtin_inf()));
    top.part[0] = part.part[0] > top.part[0] ? part.part[0] : top.part[0];
  });
  const Lane<Size> most = Lane<Size>::fill(maximum(top));
  each(size, [&](int64_t i, auto live, const Lane<Size>& mask) __attribute__((always_inline)) {
    Lane<Size> part = select(mask, exp(Lane<Size>::load(x + i, live) - most), T(0));
    total = total + part;
    part.store(y + i, live);
  });
  const T scale = T(1) / sum(total);
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    (scale * Lane<Size>::load(y + i, live)).store(y + i, live);
  });
}

template <class Size>
static FW_INLINE void elu_sum(const T* x, T* y, Size size) {
  Lane<Size> total = Lane<Size>::fill(T(0));
  each(size, [&](int64_t i, auto live, const Lane<Size>& mask) __attribute__((always_inline)) {
    Lane<Size> part = positive(x + i, live, mask);
    total = total + part;
    part.store(y + i, live);
  });
  const T scale = T(1) / (sum(total) + kSumFloor<T>);
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    (scale * Lane<Size>::load(y + i, live)).store(y + i, live);
  });
}

// y = f(x) / |f(x)|, where f is silu or the identity; returns 1 / |f(x)|.
template <class Size>
static FW_INLINE T unit(Map map, const T* x, T* y, Size size) {
  Lane<Size> total = Lane<Size>::fill(T(0));
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    Lane<Size> part = Lane<Size>::load(x + i, live);
    if (map == Map::silu_unit) part = silu(part);
    total = total + part * part;
    part.store(y + i, live);
  });
  const T scale = T(1) / T(__builtin_sqrt(sum(total) + kSquareFloor<T>));
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    (scale * Lane<Size>::load(y + i, live)).store(y + i, live);
  });
  return scale;
}

static FW_INLINE T largest(Map map) {
  return T(largest_strength(int64_t(map) - int64_t(Map::sigmoid)));
}

template <class Size>
static FW_INLINE void map_vector(Map map, const T* x, T* y, Size size) {
  switch (map) {
    case Map::softmax: return softmax(x, y, size);
    case Map::elu_sum: return elu_sum(x, y, size);
    case Map::elu:
      return each(size, [&](int64_t i, auto live, const Lane<Size>& mask)
                            __attribute__((always_inline)) {
        positive(x + i, live, mask).store(y + i, live);
      });
    case Map::identity:
      std::memcpy(y, x, size * sizeof(T));
      return;
    case Map::unit:
    case Map::silu_unit:
      unit(map, x, y, size);
      return;
    case Map::sigmoid:
    case Map::double_sigmoid:
      return each(size, [&](int64_t i, auto live, const Lane<Size>&)
                            __attribute__((always_inline)) {
        (largest(map) * sigmoid(Lane<Size>::load(x + i, live))).store(y + i, live);
      });
  }
}

// dx = y * (g - y . g), y = softmax(x); dx holds y in the meantime.
template <class Size>
static FW_INLINE void softmax_back(const T* x, const T* g, T* dx, Size size) {
  softmax(x, dx, size);
  Lane<Size> total = Lane<Size>::fill(T(0));
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    total = total + Lane<Size>::load(dx + i, live) * Lane<Size>::load(g + i, live);
  });
  const Lane<Size> mean = Lane<Size>::fill(sum(total));
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    (Lane<Size>::load(dx + i, live) * (Lane<Size>::load(g + i, live) - mean)).store(dx + i, live);
  });
}

// As in include/feature_maps.h; dx holds elu(x) + 1 in the meantime.
template <class Size>
static FW_INLINE void elu_sum_back(const T* x, const T* g, T* dx, Size size) {
  Lane<Size> total = Lane<Size>::fill(T(0)), weighted = total;
  each(size, [&](int64_t i, auto live, const Lane<Size>& mask) __attribute__((always_inline)) {
    Lane<Size> part = positive(x + i, live, mask);
    total = total + part, weighted = weighted + part * Lane<Size>::load(g + i, live);
    part.store(dx + i, live);
  });
  const T scale = T(1) / (sum(total) + kSumFloor<T>);
  const Lane<Size> mean = Lane<Size>::fill(scale * sum(weighted));
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    Lane<Size> grad = scale * (Lane<Size>::load(g + i, live) - mean);
    feature_adjoint(FeatureMap::elu, Lane<Size>::load(dx + i, live), grad).store(dx + i, live);
  });
}

// dx = f'(x) * (g - y (y . g)) / |f(x)|; dx holds y in the meantime.
template <class Size>
static FW_INLINE void unit_back(Map map, const T* x, const T* g, T* dx, Size size) {
  const T scale = unit(map, x, dx, size);
  Lane<Size> total = Lane<Size>::fill(T(0));
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    total = total + Lane<Size>::load(dx + i, live) * Lane<Size>::load(g + i, live);
  });
  const T along = sum(total);
  each(size, [&](int64_t i, auto live, const Lane<Size>&) __attribute__((always_inline)) {
    const Lane<Size> y = Lane<Size>::load(dx + i, live);
    Lane<Size> grad = scale * (Lane<Size>::load(g + i, live) - along * y);
    if (map == Map::silu_unit) grad = grad * silu_slope(Lane<Size>::load(x + i, live));
    grad.store(dx + i, live);
  });
}

template <class Size>
static FW_INLINE void unmap_vector(Map map, const T* x, const T* g, T* dx, Size size) {
  switch (map) {
    case Map::softmax: return softmax_back(x, g, dx, size);
    case Map::elu_sum: return elu_sum_back(x, g, dx, size);
    case Map::elu:
      return each(size, [&](int64_t i, auto live, const Lane<Size>& mask)
                            __attribute__((always_inline)) {
        Lane<Size> grad = Lane<Size>::load(g + i, live);
        feature_adjoint(FeatureMap::elu, positive(x + i, live, mask), grad).store(dx + i, live);
      });
    case Map::identity:
      std::memcpy(dx, g, size * sizeof(T));
      return;
    case Map::unit:
    case Map::silu_unit: return unit_back(map, x, g, dx, size);
    case Map::sigmoid:
    case Map::double_sigmoid:
      return each(size, [&](int64_t i, auto live, const Lane<Size>&)
                            __attribute__((always_inline)) {
        Lane<Size> y = sigmoid(Lane<Size>::load(x + i, live));
        Lane<Size> grad = largest(map) * Lane<Size>::load(g + i, live);
        (grad * y * (Lane<Size>::fill(T(1)) - y)).store(dx + i, live);
      });
  }
}

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Parts parts(call);
  auto* x = call.pointer<const T>();
  Buffer<T*> results(parts.number);
  for (int64_t p = 0; p < parts.number; p++) results[p] = call.pointer<T>();
  parts.for_each_vector(
      [&](int64_t p, int64_t at, int64_t own, auto size) __attribute__((always_inline)) {
        map_vector(parts.parts[p].map, x + at, results[p] + own, size);
      });
}

// A null gradient counts as zero.
FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Parts parts(call);
  auto* x = call.pointer<const T>();
  auto* dx = call.pointer<T>();
  Buffer<const T*> grads(parts.number);
  for (int64_t p = 0; p < parts.number; p++) grads[p] = call.pointer<const T>();
  parts.for_each_vector(
      [&](int64_t p, int64_t at, int64_t own, auto size) __attribute__((always_inline)) {
        if (grads[p])
          unmap_vector(parts.parts[p].map, x + at, grads[p] + own, dx + at, size);
        else
          std::memset(dx + at, 0, size * sizeof(T));
      });
}
