// The gradient of a memory's decay, <dL/dF_t, F_t>, where F_t is the decayed W before row t's
// write. The first matrix is available going back in time, the second going forward.
//
// So time is cut into stretches. Going back over a stretch, `FadingGradient` keeps each row's
// gradient. Then W is replayed forward over the same rows, from the W that `Starts` has kept.
// In all matrices, lanes are keys and rows are values.
#pragma once
#include "call.h"
#include "matrix.h"

namespace fastweights {

constexpr int64_t kStretch = 16;  // rows; for 32 x 32 floats, their gradients take 64 KiB

template <class T, int PV, int PK>
class FadingGradient {
 public:
  using Value = Row<T, PV>;
  using Key = Row<T, PK>;

  void start(int64_t time, const T* final, int64_t row_stride, int64_t keys, int64_t values) {
    keys_ = keys, values_ = values;
    for (auto& each : kept_) each.clear_from(values);
    none_.clear();
    forget();
    if (!final) return;
    turn_to(time);
    now_->load_transposed(final, values, keys, row_stride);
    later_ = now_;
  }

  FW_APART void forget() {
    later_ = &none_;
    leave(Value::fill(T(0)), Key::fill(T(0)));
  }

  // Selects row t for the next step. A stretch's rows and the row after it have separate slots.
  void turn_to(int64_t t) { now_ = &kept_[t % (kStretch + 1)]; }

  // As `step`, `leave_error` and `add` of MemoryGradient.
  FW_INLINE Value step(const Key& q, const Key& k, const Value& u, const Value& dy, Key& dk,
                       T keep) {
    move<2>({{{along_.data(), faded(row_, keep)}, {dy.data(), q}}}, u, dk, keep);
    return read_across<T, PK, PV>(now_->row, k);
  }

  FW_INLINE void leave_error(const Key& k, const Value& dv) { leave(dv, T(-1) * k); }

  FW_INLINE Value add(const Key& q, const Key& k, const Value& v, const Value& dy, Key& dk,
                      T keep) {
    move<1>({{{dy.data(), q}}}, v, dk, keep);
    return read_across<T, PK, PV>(now_->row, k);
  }

  // The inner product of dL/dW_t with `weights`, for a row t of this stretch.
  FW_INLINE T inner(int64_t t, const Matrix<T, PK, PV>& weights) const {
    const auto& gradient = kept_[t % (kStretch + 1)];
    Key total = Key::fill(T(0));
    for (int64_t j = 0; j < values_; j++) total = total + gradient.row[j] * weights.row[j];
    return sum(total);
  }

  FW_APART void finish(T* to, int64_t row_stride, T keep) const {
    Matrix<T, PV, PK> straight;
    straight.load_transposed(later_->row[0].data(), keys_, values_, PK);
    straight.store_written(to, keys_, values_, row_stride, row_, along_, keep);
  }

 private:
  using Lines = Matrix<T, PK, PV>;

  void leave(const Value& along, const Key& row) { along_ = along, row_ = row; }

  template <size_t W>
  FW_INLINE void move(const std::array<Write<T, PK>, W>& writes, const Value& along, Key& sum,
                      T keep) {
    sweep_to<T, PK, W, 1>(now_->row, later_->row, values_, writes, {{{along.data(), &sum}}}, keep);
    later_ = now_;
  }

  Lines kept_[kStretch + 1], none_;
  Lines *now_, *later_;  // dL/dW of the current row, and of the next row with a write pending
  Value along_;
  Key row_;
  int64_t keys_, values_;
};

// W before each stretch.
template <class T, int PV, int PK>
class Starts {
 public:
  using Lines = Matrix<T, PK, PV>;

  // Row r's update: W = keep W + key update^T; at a reset, W = key update^T.
  struct Step {
    Row<T, PK> key;
    Row<T, PV> update;
    T keep;
  };

  template <class StepAt>
  FW_APART void start(int64_t time, const T* initial, int64_t row_stride, int64_t keys,
                      int64_t values, Steps<const bool> is_first, StepAt step_at) {
    const int64_t count = time > 0 ? (time + kStretch - 1) / kStretch : 1;
    kept_.at_least(count);
    kept_[0].load_transposed(initial, values, keys, row_stride);
    for (int64_t i = 1; i < count; i++) {
      kept_[i] = kept_[i - 1];
      for (int64_t r = (i - 1) * kStretch; r < i * kStretch;)
        r = advance(kept_[i], r, i * kStretch, values, is_first, step_at);
    }
  }

  const Lines& before(int64_t begin) { return kept_[begin / kStretch]; }

 private:
  static constexpr int64_t kTogether = 4;

  // Advances W over rows r, r + 1, ... in one pass, with a fixed maximum, up to `end` or the next
  // reset. Returns the row after them.
  template <class StepAt>
  FW_INLINE int64_t advance(Lines& matrix, int64_t r, int64_t end, int64_t values,
                            const Steps<const bool>& is_first, StepAt step_at) {
    if (*is_first[r]) matrix.clear();
    int64_t next = r + 1;
    while (next < end && next < r + kTogether && !*is_first[next]) next++;
    std::array<Row<T, PV>, kTogether> along;
    std::array<Write<T, PK>, kTogether> writes;
    T left = T(1);
    for (int64_t w = kTogether - 1; w >= 0; w--) {
      along[w] = Row<T, PV>::fill(T(0)), writes[w] = {along[w].data(), Row<T, PK>::fill(T(0))};
      if (r + w >= next) continue;
      const Step step = step_at(r + w);
      along[w] = step.update, writes[w].row = left * step.key;
      left *= step.keep;
    }
    sweep<T, PK, kTogether, 0>(matrix.row, values, writes, {}, left);
    return next;
  }

  Buffer<Lines> kept_;
};

}  // namespace fastweights
