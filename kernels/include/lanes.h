// Rows of numbers that the compiler keeps in vector registers, and reductions over them.
//
// Written with the vector extensions of GCC and clang, so one source serves SSE, AVX2, AVX-512 and
// NEON; the build flags determine the register width. A row is padded to P lanes. Lanes beyond the
// live lanes are zero unless a comment says otherwise.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

namespace fastweights {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kRegisterBytes = 32, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kRegisterBytes = 16, kRegisters = 32;
#else
constexpr int kRegisterBytes = 16, kRegisters = 16;
#endif

#define FW_INLINE inline __attribute__((always_inline))
// For functions that take little run time but seconds to compile inline, and for functions that
// need all registers.
#define FW_APART __attribute__((noinline))

// m + a * b, for a sum that is stored next. On AMD's Zen 3 a fused multiply-add occupies a unit that
// stores need: a pass that writes a matrix takes 1.4 times as long as with two instructions, which use
// other units. The asm statement keeps the compiler from fusing them.
template <class Part, class T>
FW_INLINE Part add_product(Part m, Part a, T b) {
  Part product = a * b;
#if defined(FASTWEIGHTS_SPLIT_WRITES) && defined(__x86_64__)
  asm("" : "+v"(product));
#endif
  return m + product;
}

template <class T, int P>
struct Row {
  static constexpr int kFit = kRegisterBytes / int(sizeof(T));
  static constexpr int kWidth = P < kFit ? P : kFit;  // lanes in one register
  static constexpr int kParts = P / kWidth;
  typedef T Part __attribute__((vector_size(kWidth * sizeof(T)), may_alias));
  typedef Part Anywhere __attribute__((aligned(alignof(T))));

  Part part[kParts];

  // Copied part by part. A compiler that copies the whole row uses pieces smaller than a register,
  // and loading a register from freshly stored pieces stalls.
  Row() = default;
  FW_INLINE Row(const Row& other) { *this = other; }
  FW_INLINE Row& operator=(const Row& other) {
    for (int i = 0; i < kParts; i++) part[i] = other.part[i];
    return *this;
  }

  T* data() { return reinterpret_cast<T*>(part); }
  const T* data() const { return reinterpret_cast<const T*>(part); }
  T operator[](int lane) const { return data()[lane]; }

  static FW_INLINE Row fill(T value) {
    Row row;
    for (int i = 0; i < kParts; i++) row.part[i] = Part{} + value;
    return row;
  }

  static FW_INLINE Row load(const T* from, int64_t live) {
    Row row;
    if (live == P) {
      for (int i = 0; i < kParts; i++)
        row.part[i] = *reinterpret_cast<const Anywhere*>(from + i * kWidth);
    } else {
      row = fill(T(0));
      std::memcpy(row.part, from, live * sizeof(T));
    }
    return row;
  }

  static FW_INLINE Row load_or_zero(const T* from, int64_t live) {
    return from ? load(from, live) : fill(T(0));
  }

  FW_INLINE void store(T* to, int64_t live) const {
    if (live == P)
      for (int i = 0; i < kParts; i++)
        *reinterpret_cast<Anywhere*>(to + i * kWidth) = part[i];
    else
      std::memcpy(to, part, live * sizeof(T));
  }
};

template <class Work>
FW_APART auto apart(Work work) {
  return work();
}

// For the work of a step outside its passes over matrices, which takes long to compile. If rows
// take more than four registers, it is compiled once for all its callers.
template <class R, class Work>
FW_INLINE auto once_if_wide(Work work) {
  if constexpr (R::kParts > 4)
    return apart(work);
  else
    return work();
}

#define FW_ROW_OPERATOR(op)                                            \
  template <class T, int P>                                            \
  FW_INLINE Row<T, P> operator op(const Row<T, P>& a, const Row<T, P>& b) { \
    Row<T, P> row;                                                     \
    for (int i = 0; i < Row<T, P>::kParts; i++) row.part[i] = a.part[i] op b.part[i]; \
    return row;                                                        \
  }
FW_ROW_OPERATOR(+)
FW_ROW_OPERATOR(-)
FW_ROW_OPERATOR(*)
FW_ROW_OPERATOR(/)
#undef FW_ROW_OPERATOR

template <class T, int P>
FW_INLINE Row<T, P> operator*(T scale, const Row<T, P>& a) {
  return Row<T, P>::fill(scale) * a;
}

// Sums and maxima by repeated halving: the same order on every machine, and log2(P) deep.
template <class T, int P>
FW_INLINE Row<T, P / 2> half(const Row<T, P>& row, int which) {
  return Row<T, P / 2>::load(row.data() + which * (P / 2), P / 2);
}

template <class T, int P>
FW_INLINE T sum(const Row<T, P>& row) {
  if constexpr (P == 1)
    return row.data()[0];
  else
    return sum(half(row, 0) + half(row, 1));
}

template <class T, int P>
FW_INLINE T maximum(const Row<T, P>& row) {
  if constexpr (P == 1) {
    return row.data()[0];
  } else {
    Row<T, P / 2> a = half(row, 0), b = half(row, 1);
    for (int i = 0; i < Row<T, P / 2>::kParts; i++)
      a.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
    return maximum(a);
  }
}

template <class T, int P>
FW_INLINE T dot(const Row<T, P>& a, const Row<T, P>& b) {
  return sum(a * b);
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define FW_SHUFFLE 1
#endif
#endif

// One half of every 2 * kGroup lanes of a, then the same half of b: the lower half if kShift is 0,
// the upper half if it is kGroup.
template <int kGroup, int kShift, class Part, size_t... lane>
FW_INLINE Part halves(Part a, Part b, std::index_sequence<lane...>) {
  constexpr int kLanes = sizeof...(lane);
  constexpr auto from = [](int i) {
    int inside = i % (2 * kGroup), start = i - inside + kShift;
    return inside < kGroup ? start + inside : kLanes + start + inside - kGroup;
  };
#ifdef FW_SHUFFLE
  return __builtin_shufflevector(a, b, from(lane)...);
#else
  Part result{};
  ((result[lane] = from(lane) < kLanes ? a[from(lane)] : b[from(lane) - kLanes]), ...);
  return result;
#endif
}

// Transposes as many rows as there are lanes, recursively: halves, then halves of them, and so on.
template <int kLanes, int kGroup = kLanes / 2, class Part>
FW_INLINE void transpose(Part* rows) {
  if constexpr (kGroup > 0) {
    constexpr std::make_index_sequence<kLanes> lanes;
    for (int i = 0; i < kLanes; i++) {
      if (i & kGroup) continue;
      Part upper = rows[i], lower = rows[i + kGroup];
      rows[i] = halves<kGroup, 0>(upper, lower, lanes);
      rows[i + kGroup] = halves<kGroup, kGroup>(upper, lower, lanes);
    }
    transpose<kLanes, kGroup / 2>(rows);
  }
}

// Lane j of the result is the sum of rows[j], for as many rows as lanes. This is a transposition
// with additions, at two shuffles per addition. Overwrites the rows.
template <int kLanes, int kGroup = kLanes / 2, class Part>
FW_INLINE Part sum_each(Part* rows) {
  if constexpr (kGroup == 0) {
    return rows[0];
  } else {
    constexpr std::make_index_sequence<kLanes> lanes;
    for (int i = 0; i < kGroup; i++)
      rows[i] = halves<kGroup, 0>(rows[i], rows[i + kGroup], lanes) +
                halves<kGroup, kGroup>(rows[i], rows[i + kGroup], lanes);
    return sum_each<kLanes, kGroup / 2>(rows);
  }
}

}  // namespace fastweights
