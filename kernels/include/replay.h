// W in the backward pass: rewound write by write, and replayed where rewinding is too inaccurate.
//
// Rewinding, W_{t-1} = W_t - k u^T, costs one pass and no memory, but carries the rounding error of
// W_t to every earlier row. This is harmless while W keeps its size. If W has grown, the rounding
// error of the late W exceeds the early W, and gradients that read the early W are noise. So each
// head is first rewound. At the start of each segment, the rewound W is compared with the W that
// the segment began with, which is known: the difference is the accumulated rounding error. If it
// is too large, a second walk takes that segment's W from `Replay`, which repeats the forward
// pass's writes in the same order, bit for bit. The second walk rewinds all other segments again,
// so that nothing in one episode, not even a NaN, changes a bit of another episode.
#pragma once
#include "call.h"
#include "matrix.h"

namespace fastweights {

// The largest allowed error of the rewound W at a segment's start, relative to the W there. With
// keys that sum to one, the error was a few roundings after 80 steps, in each of 20,000 heads. Up
// to about this error, gradients are as good as the reference's in the same precision, or within
// 2e-5. At ten times this error they are not (tests/kernels/test_kernel_growing_state.py).
template <class T>
constexpr T kArrival = T(64) * T(sizeof(T) == sizeof(float) ? __FLT_EPSILON__ : __DBL_EPSILON__);

// The first row of the segment that ends before `end`: the last reset before it, or 0.
inline int64_t segment_start(int64_t end, Steps<const bool> is_first) {
  int64_t begin = end - 1;
  while (begin > 0 && !*is_first[begin]) begin--;
  return begin;
}

// The segments of one head for which the rewound matrix was too inaccurate at the start.
class Arrivals {
 public:
  // Called before a walk back. A head's second walk (`again`) uses the results of the first.
  void start(int64_t time, bool again) {
    again_ = again;
    if (!again) all_ = true, lost_.at_least(time);
  }

  bool all() const { return all_; }
  bool wanted() const { return !again_; }

  // Records the result for the segment that begins with row t.
  void note(int64_t t, bool arrived) {
    lost_[t] = !arrived;
    all_ = all_ && arrived;
  }

  // Whether the segment before row `end` must be replayed.
  bool replays(int64_t end, Steps<const bool> is_first) {
    return again_ && end > 0 && lost_[segment_start(end, is_first)];
  }

 private:
  bool again_ = false, all_ = true;
  Buffer<bool> lost_;
};

// Calls walk(again) for one head. It returns whether every segment was rewound accurately. If not,
// a second walk replays the inaccurate segments and rewrites all results.
template <class Walk>
FW_INLINE void walk_back(Walk walk) {
  for (const bool again : {false, true})
    if (walk(again)) return;
}

// Whether rows[j] is close enough to began(j) over all `count` rows, in the norm of all entries. As
// a fresh W is zero, the scale of a beginning also includes the first error (which includes the
// first value), divided by the length of the first key if that is above one.
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

// The matrices of one segment, requested from its last row to its first. For a segment of n rows,
// one matrix is stored every sqrt(n) rows; those in between are recomputed on request.
template <class M>
class Replay {
 public:
  // Rows begin .. end - 1. `first` is W before row `begin`; `write(matrix, r)` writes row r.
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

  // W_{t-1}, the matrix before row t's write.
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
