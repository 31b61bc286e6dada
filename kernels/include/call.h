// The arguments of a call from Python: an array of integers, shared by calls of the same kind, and
// an array of addresses. Both are read in order (kernels/machinery/cpu_call.py and direct_call.py).
#pragma once
#include <cstdint>

#include "bfloat16.h"
#include "lanes.h"

namespace fastweights {

// The rows of one head of a batch column, `stride` apart in time. Each loop over time has its own
// copy, because rereading the strides at every step costs a quarter of a step's time.
template <class T>
struct Steps {
  T* start;
  int64_t stride;

  explicit operator bool() const { return start != nullptr; }
  FW_INLINE T* operator[](int64_t t) const { return start + t * stride; }
};

// A tensor as a pointer and strides (in elements). A null tensor is a result that the caller does
// not need.
template <class T>
struct Tensor {
  T* data;
  const int64_t* stride;

  explicit operator bool() const { return data != nullptr; }

  template <class... Index>
  T* at(Index... index) const {
    const int64_t indices[] = {int64_t(index)...};
    int64_t offset = 0;
    for (size_t i = 0; i < sizeof...(index); i++) offset += indices[i] * stride[i];
    return data + offset;
  }

  template <class... Index>
  T* at_or_null(Index... index) const {
    return data ? at(index...) : nullptr;
  }

  // All steps of a tensor [T, B, H, ...] at b, h, ...
  template <class... Index>
  Steps<T> steps(Index... index) const {
    return {at_or_null(0, index...), stride[0]};
  }
};

// Prefetch distance, in steps. Successive steps are batch * heads rows apart, too far for the
// hardware prefetcher. Prefetching a step that does not exist is harmless. Rows a power of two
// apart share one eight-way set of the L1 cache, so with a longer distance they would evict each
// other before they are read.
constexpr int64_t kAhead = 6;

template <class... Rows>
FW_INLINE void prefetch_rows(int64_t numbers, int64_t t, const Steps<Rows>&... rows) {
  auto one = [&](const auto& steps) __attribute__((always_inline)) {
    if (!steps) return;
    const char* row = reinterpret_cast<const char*>(steps[t]);
    const int64_t bytes = numbers * int64_t(sizeof(*steps.start));
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte);
    __builtin_prefetch(row + bytes - 1);  // an unaligned row extends into one more cache line
  };
  (one(rows), ...);
}

// Call before a forward loop over time; `prefetch(t)` prefetches the rows of step t.
template <class Prefetch>
FW_INLINE void prefetch_first(int64_t time, Prefetch prefetch) {
  for (int64_t t = 0; t < kAhead && t < time; t++) prefetch(t);
}

// The same for a loop that goes backward in time.
template <class Prefetch>
FW_INLINE void prefetch_last(int64_t time, Prefetch prefetch) {
  for (int64_t t = time - 1; t >= time - kAhead && t >= 0; t--) prefetch(t);
}

class Call {
 public:
  Call(const int64_t* layout, void* const* addresses) : layout_(layout), addresses_(addresses) {}

  int64_t integer() { return *layout_++; }

  template <class T>
  T* pointer() {
    return static_cast<T*>(*addresses_++);
  }

  template <class T>
  Tensor<T> tensor() {
    int64_t rank = integer();
    Tensor<T> result{pointer<T>(), layout_};
    layout_ += rank;
    return result;
  }

 private:
  const int64_t* layout_;
  void* const* addresses_;
};

// Each iteration writes only its own results, so results do not depend on the number of threads.
template <class Body>
void parallel_for(int64_t count, int64_t threads, Body body) {
#pragma omp parallel for schedule(static) num_threads(int(threads)) if (threads > 1)
  for (int64_t n = 0; n < count; n++) body(n);
}

// Memory whose size is known only at run time. (The standard library's containers take a quarter of
// a second to compile.)
template <class Item>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) { at_least(count); }
  Buffer(const Buffer&) = delete;
  ~Buffer() { delete[] items_; }

  Item& operator[](int64_t i) { return items_[i]; }
  Item* data() { return items_; }

  // Uninitialised memory for at least `count` items.
  Item* at_least(int64_t count) {
    if (count > room_) {
      Item* larger = new Item[count];
      delete[] items_;
      items_ = larger, room_ = count;
    }
    return items_;
  }

 private:
  Item* items_ = nullptr;
  int64_t room_ = 0;
};

// Per-thread working memory, kept between calls.
template <class Space>
Space& workspace() {
  static thread_local Buffer<Space> space(1);
  return space[0];
}

// A build is for one scalar type, one padded head size (of keys and of values), and one of a
// kernel's two functions. The other function is static and unused, so no code is generated for it.
#ifndef FASTWEIGHTS_SCALAR
#define FASTWEIGHTS_SCALAR float
#endif
#ifndef FASTWEIGHTS_KEYS
#define FASTWEIGHTS_KEYS 32
#endif
#ifndef FASTWEIGHTS_VALUES
#define FASTWEIGHTS_VALUES 32
#endif
using T = FASTWEIGHTS_SCALAR;
constexpr int PK = FASTWEIGHTS_KEYS, PV = FASTWEIGHTS_VALUES;
constexpr int P = PK > PV ? PK : PV;

#define FW_EXPORT extern "C" __attribute__((visibility("default")))
#ifndef FASTWEIGHTS_FORWARD
#define FASTWEIGHTS_FORWARD FW_EXPORT
#endif
#ifndef FASTWEIGHTS_BACKWARD
#define FASTWEIGHTS_BACKWARD FW_EXPORT
#endif

// The sizes that most kernels take, and the number of threads they may use.
struct Sizes {
  int64_t time, batch, heads, keys, values, threads;

  explicit Sizes(Call& call)
      : time(call.integer()), batch(call.integer()), heads(call.integer()), keys(call.integer()),
        values(call.integer()), threads(call.integer()) {}

  // Calls body(b, h) for every batch column and head.
  template <class Body>
  void for_each_head(Body body) const {
    parallel_for(batch * heads, threads, [&](int64_t n) { body(n / heads, n % heads); });
  }
};

}  // namespace fastweights
