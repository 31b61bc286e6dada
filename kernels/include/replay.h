// W on the way back in time: rewound, write by write, and replayed where that loses it.
//
// Going back, W_{t-1} = W_t - k u^T costs one pass and no memory, and takes the rounding of W_t along
// to every earlier row. That is harmless while W keeps its size. Once W has grown, the rounding of
// the late W exceeds the early W, and the gradients that read the early W are noise. So a head is
// rewound first. Where each segment begins, the W that has arrived is compared with the W that the
// segment began with, which is known: the difference is the rounding gathered on the way. If it is
// too large, the head goes back once more and takes that segment's W from `Replay`, which repeats the
// forward pass's writes in its order, to the last bit. A segment that arrived is rewound again: what
// happens in one episode, be it a NaN, changes no bit of another one.
#pragma once
#include "call.h"
#include "matrix.h"

namespace fastweights {

// How far from its beginning the rewound W may arrive, relative to the size of that beginning. With
// keys that sum to one, it arrives within a few roundings over 80 steps, in each of 20,000 heads. Up to
// about this, the gradients are as good as the reference's in the same precision or within 2e-5; ten
// times farther they are not (tests/kernels/test_kernel_growing_state.py).
template <class T>
constexpr T kArrival = T(64) * T(sizeof(T) == sizeof(float) ? __FLT_EPSILON__ : __DBL_EPSILON__);

// The first row of the segment that ends before `end`: the last reset before it, or 0.
inline int64_t segment_start(int64_t end, Steps<const bool> is_first) {
  int64_t begin = end - 1;
  while (begin > 0 && !*is_first[begin]) begin--;
  return begin;
}

// In which segments of one head a matrix did not arrive.
class Arrivals {
 public:
  // Before a walk back; the second one of a head knows what the first one found.
  void start(int64_t time, bool again) {
    again_ = again;
    if (!again) all_ = true, lost_.at_least(time);
  }

  bool all() const { return all_; }
  bool wanted() const { return !again_; }

  // For the segment that begins with row t.
  void note(int64_t t, bool arrived) {
    lost_[t] = !arrived;
    all_ = all_ && arrived;
  }

  // Whether the segment before row `end` is to be replayed.
  bool replays(int64_t end, Steps<const bool> is_first) {
    return again_ && end > 0 && lost_[segment_start(end, is_first)];
  }

 private:
  bool again_ = false, all_ = true;
  Buffer<bool> lost_;
};

// Calls walk(again) for one head. It says whether W arrived in every segment; if not, a second walk,
// which replays those where it did not, writes all results anew.
template <class Walk>
FW_INLINE void walk_back(Walk walk) {
  for (const bool again : {false, true})
    if (walk(again)) return;
}

// Whether rows[j] is as good as began(j) for each of `count` rows, in the norm of all their entries. A
// fresh W is zero: the first error, in which the first value is, belongs to the size of a beginning,
// divided by the length of the first key if that is above one.
template <class T, int P, class Began>
FW_APART bool has_arrived(const Row<T, P>* rows, int64_t count, T first_error_squared,
                          Began began) {
  using R = Row<T, P>;
  R gap = R::fill(T(0)), size = R::fill(T(0));
  for (int64_t j = 0; j < count; j++) {
    const R start = began(j), off = rows[j] - start;
    gap = gap + off * off;
    size = size + start * start;
  }
  const T missed = sum(gap);
  return missed == T(0) || missed < kArrival<T> * kArrival<T> * (sum(size) + first_error_squared);
}

// The matrices of one segment, asked for from its last row to its first. Every so many rows one is
// kept, the square root of their number; between two of these they are made when they are asked for.
template <class M>
class Replay {
 public:
  // Rows begin .. end - 1, from what the first row found; `write(matrix, r)` makes row r's write.
  template <class WriteRow>
  void start(const M& first, int64_t begin, int64_t end, WriteRow write) {
    begin_ = begin, end_ = end, made_ = -1, stretch_ = 1;
    while (stretch_ * stretch_ < end - begin) stretch_++;
    const int64_t count = (end - begin + stretch_ - 1) / stretch_;
    kept_.at_least(count), between_.at_least(stretch_);
    for (int64_t i = 0; i < count; i++) {
      kept_[i] = i ? kept_[i - 1] : first;
      for (int64_t r = begin + (i - 1) * stretch_; i && r < begin + i * stretch_; r++)
        write(kept_[i], r);
    }
  }

  // W_{t-1}: what row t found.
  template <class WriteRow>
  M& before(int64_t t, WriteRow write) {
    const int64_t i = (t - begin_) / stretch_, from = begin_ + i * stretch_;
    if (i != made_) {
      between_[0] = kept_[i], made_ = i;
      for (int64_t r = from; r < from + stretch_ - 1 && r < end_ - 1; r++) {
        between_[r + 1 - from] = between_[r - from];
        write(between_[r + 1 - from], r);
      }
    }
    return between_[t - from];
  }

 private:
  Buffer<M> kept_, between_;
  int64_t begin_ = 0, end_ = 0, stretch_ = 1, made_ = -1;
};

}  // namespace fastweights
