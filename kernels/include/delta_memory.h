// A matrix written by the delta rule, forward and backward: the cell from which delta_rule,
// recurrent_delta_rule, delta_rnn and delta_lstm are built.
//
//   e = v - W_{t-1}^T k,  u = beta e,  W_t = W_{t-1} + k u^T,  y = W_t^T q
//
// Derivation of the adjoint: kernels/delta_rule/backward.md.
#pragma once
#include <algorithm>

#include "call.h"
#include "elementwise.h"
#include "matrix.h"
#include "replay.h"

namespace fastweights {

// A matrix whose last write is pending until the next pass over it. It has P lanes and Rows rows.
template <class T, int P, int Rows = P>
struct PendingMatrix {
  Matrix<T, P, Rows> matrix;
  Row<T, Rows> pending_along;
  Row<T, P> pending_row;
  int64_t rows, lanes;

  // Nothing is pending; the caller fills the matrix.
  void start(int64_t live_rows, int64_t live_lanes) {
    rows = live_rows, lanes = live_lanes;
    leave(Row<T, Rows>::fill(T(0)), Row<T, P>::fill(T(0)));
  }

  FW_APART void forget() {
    matrix.clear();
    leave(Row<T, Rows>::fill(T(0)), Row<T, P>::fill(T(0)));
  }

  void leave(const Row<T, Rows>& along, const Row<T, P>& row) {
    pending_along = along;
    pending_row = row;
  }

  // The pending write, for a matrix that decays before the pass.
  template <class Keep>
  FW_INLINE Write<T, P> pending(Keep keep) const {
    return {pending_along.data(), faded(pending_row, keep)};
  }

  template <class Keep = Whole>
  FW_APART void finish(T* to, int64_t row_stride, Keep keep = {}) const {
    matrix.store_written(to, rows, lanes, row_stride, pending_along, pending_row, keep);
  }
};

// W in the forward pass. Lanes are values (at most PV), rows are keys (at most PK).
template <class T, int PV, int PK = PV>
struct DeltaMemory : PendingMatrix<T, PV, PK> {
  using Base = PendingMatrix<T, PV, PK>;
  using Value = Row<T, PV>;
  using Key = Row<T, PK>;

  void start(const T* from, int64_t row_stride, int64_t keys, int64_t values) {
    Base::start(keys, values);
    this->matrix.load(from, keys, values, row_stride);
  }

  // Computes W_t^T q in a pass before W_t is written, as W_{t-1}^T q + u (k . q). With decay,
  // W_{t-1} here is already decayed.
  template <class Keep = Whole>
  FW_INLINE Value step(const Key& q, const Key& k, const Value& v, T beta, Value& error,
                       Keep keep = {}) {
    Value old, answer;
    sweep<T, PV, 1, 2>(this->matrix.row, this->rows, {{this->pending(keep)}},
                       {{{k.data(), &old}, {q.data(), &answer}}}, keep);
    error = v - old;
    this->leave(k, beta * error);
    return answer + dot(k, q) * this->pending_row;
  }

  // The sum rule: as above, with u = v.
  template <class Keep = Whole>
  FW_INLINE Value add(const Key& q, const Key& k, const Value& v, Keep keep = {}) {
    Value answer;
    sweep<T, PV, 1, 1>(this->matrix.row, this->rows, {{this->pending(keep)}},
                       {{{q.data(), &answer}}}, keep);
    this->leave(k, v);
    return answer + dot(k, q) * v;
  }
};

template <class T, int P>
struct Written {  // one step's write: W += key value^T
  Row<T, P> key, value;
};

// dL/dW in the backward pass, set to zero at a reset. Lanes are values, rows are keys.
template <class T, int PV, int PK = PV>
struct MemoryGradient : PendingMatrix<T, PV, PK> {
  using Base = PendingMatrix<T, PV, PK>;
  using Value = Row<T, PV>;
  using Key = Row<T, PK>;

  void start(const T* final, int64_t row_stride, int64_t keys, int64_t values) {
    Base::start(keys, values);
    if (final)
      this->matrix.load(final, keys, values, row_stride);
    else
      this->matrix.clear();
  }

  // Backward through y = W^T q and W += k u^T, after the later step's pending write and its decay:
  // dW += q dy^T; then du = dW^T k, which is returned, and dk = dW u.
  template <class Keep = Whole>
  FW_INLINE Value step(const Key& q, const Key& k, const Value& u, const Value& dy, Key& dk,
                       Keep keep = {}) {
    Value du;
    sweep<T, PV, 2, 1>(this->matrix.row, this->rows, {{this->pending(keep), {q.data(), dy}}},
                       {{{k.data(), &du}}}, keep);
    dk = read_across<T, PV, PK>(this->matrix.row, u);
    return du;
  }

  // Backward through the error v - W^T k, before the write: leaves dW -= k dv^T pending.
  FW_INLINE void leave_error(const Key& k, const Value& dv) { this->leave(k, T(-1) * dv); }

  // Like `step`, for the sum rule, which never leaves a write pending.
  template <class Keep = Whole>
  FW_INLINE Value add(const Key& q, const Key& k, const Value& v, const Value& dy, Key& dk,
                      Keep keep = {}) {
    Value dv;
    sweep<T, PV, 1, 1>(this->matrix.row, this->rows, {{{q.data(), dy}}}, {{{k.data(), &dv}}},
                       keep);
    dk = read_across<T, PV, PK>(this->matrix.row, v);
    return dv;
  }
};

// Replays W forward in time, for the gradients of the vectors that read it. Transposed: lanes are
// keys, rows are values.
template <class T, int PV, int PK = PV>
struct MemoryReplay : PendingMatrix<T, PK, PV> {
  using Base = PendingMatrix<T, PK, PV>;
  using Value = Row<T, PV>;
  using Key = Row<T, PK>;

  void start(const T* from, int64_t row_stride, int64_t keys, int64_t values) {
    Base::start(values, keys);
    this->matrix.load_transposed(from, values, keys, row_stride);
  }

  void start(const Matrix<T, PK, PV>& from, int64_t keys, int64_t values) {
    Base::start(values, keys);
    this->matrix = from;
  }

  // For each read, the product of W_{t-1}, after any decay, with numbers along the values. Then
  // W_t = W_{t-1} + k u^T, with the same decay.
  template <size_t N, class Keep = Whole>
  FW_INLINE void step(const std::array<Read<T, PK>, N>& reads, const Key& k, const Value& u,
                      Keep keep = {}) {
    sweep<T, PK, 1, N>(this->matrix.row, this->rows, {{this->pending(keep)}}, reads, keep);
    this->leave(u, k);
  }
};

template <class T, int P>
struct DeltaGradients {
  Row<T, P> q, k, v;
  T beta;
};

// Where an unroll's segments begin, and their first W: zero after a reset, else the initial W.
template <class T>
struct Beginnings {
  Steps<const bool> is_first;
  const T* initial;
  int64_t row_stride;
};

// W and dW going back together, for gradients that need both at once. W is rewound from its final
// value, write by write, or replayed (replay.h). `write_at(r)` returns row r's write.
template <class T, int P>
struct DeltaAdjoint {
  using R = Row<T, P>;
  Matrix<T, P> weights;  // W_t transposed: lanes are keys, rows are values
  MemoryGradient<T, P> gradient;
  Replay<Matrix<T, P>> replay;
  Arrivals arrivals;
  Beginnings<T> from;
  int64_t keys, values;
  bool replays;  // whether this segment is replayed

  template <class WriteAt>
  FW_APART void start(int64_t time, const T* final_weights, int64_t row_stride,
                      const T* final_grad, int64_t grad_stride, int64_t key_size,
                      int64_t value_size, const Beginnings<T>& beginnings, bool again,
                      WriteAt write_at) {
    keys = key_size, values = value_size, from = beginnings;
    gradient.start(final_grad, grad_stride, keys, values);
    arrivals.start(time, again);
    replays = arrivals.replays(time, from.is_first);
    if (replays)
      open(time, write_at);
    else
      weights.load_transposed(final_weights, values, keys, row_stride);
  }

  // W before row `begin`, the first of a segment.
  void load_beginning(int64_t begin) {
    if (*from.is_first[begin])
      weights.clear();
    else
      weights.load_transposed(from.initial, values, keys, from.row_stride);
  }

  // Rebuilds the last weights of the segment before row `end` or, if it is replayed, all its
  // weights, from its first weights and its writes.
  template <class WriteAt>
  void open(int64_t end, WriteAt write_at) {
    const int64_t begin = segment_start(end, from.is_first);
    load_beginning(begin);
    if (replays)
      replay.start(weights, begin, end, writing<1>(end, write_at));
    else
      for (int64_t r = begin; r < end; r += kTogether)
        writing<kTogether>(end, write_at)(weights, r);
  }

  // Applies up to N writes, of rows r, r + 1, ... before `end`, in one pass.
  static constexpr size_t kTogether = 4;
  template <size_t N, class WriteAt>
  auto writing(int64_t end, WriteAt write_at) const {
    return [=, count = values](Matrix<T, P>& matrix, int64_t r) {
      std::array<R, N> along;
      std::array<Write<T, P>, N> writes;
      for (size_t w = 0; w < N; w++) {
        Written<T, P> written = {R::fill(T(0)), R::fill(T(0))};
        if (r + int64_t(w) < end) written = write_at(r + w);
        along[w] = written.value;
        writes[w] = {along[w].data(), written.key};
      }
      matrix.write(count, writes);
    };
  }

  // Called after row t, where a segment begins (a reset or the first row): checks the rewound W. An
  // error in W changes row t's dk by that error times dv, and dv grows with the key.
  FW_APART void arrive(int64_t t, const R& key, const R& error) {
    if (!arrivals.wanted()) return;
    const T first = dot(error, error) / std::max(T(1), dot(key, key));
    if (*from.is_first[t]) {
      const auto began = [](int64_t) { return R::fill(T(0)); };
      arrivals.note(t, has_arrived(weights.row, values, first, began));
    } else {
      Matrix<T, P> initial;
      initial.load_transposed(from.initial, values, keys, from.row_stride);
      const auto began = [&](int64_t j) { return initial.row[j]; };
      arrivals.note(t, has_arrived(weights.row, values, first, began));
    }
  }

  // Goes back across the reset before row t: restores the last weights of the earlier segment.
  template <class WriteAt>
  FW_APART void cross_reset(int64_t t, WriteAt write_at) {
    gradient.forget();
    if (t == 0) return;
    replays = arrivals.replays(t, from.is_first);
    open(t, write_at);
  }

  // Row t, one step back in time; `error` and `beta` are those of the forward step.
  template <class WriteAt>
  FW_INLINE DeltaGradients<T, P> step(int64_t t, const R& q, const R& k, const R& error, T beta,
                                      const R& dy, WriteAt write_at) {
    if (!replays) return step(weights.row, T(-1), q, k, error, beta, dy);
    return step(at(t, write_at), T(0), q, k, error, beta, dy);
  }

  template <class WriteAt>
  FW_APART R* at(int64_t t, WriteAt write_at) {
    return replay.before(t, writing<1>(t, write_at)).row;
  }

  // `back` is the factor by which row t's write is added: -1 to undo it, 0 if `matrix` is W_{t-1}.
  FW_APART DeltaGradients<T, P> step(R* matrix, T back, const R& q, const R& k, const R& error,
                                     T beta, const R& dy) {
    DeltaGradients<T, P> d;
    R update = beta * error, undo = back * update;
    R du = gradient.step(q, k, update, dy, d.k);
    d.v = beta * du;
    d.beta = dot(du, error);
    R from_output, from_error;
    sweep<T, P, 1, 2>(matrix, values, {{{undo.data(), k}}},
                      {{{dy.data(), &from_output}, {d.v.data(), &from_error}}});
    d.q = from_output + dot(update, dy) * k;
    d.k = d.k - from_error;
    gradient.leave_error(k, d.v);
    return d;
  }

  void finish(T* to, int64_t row_stride) const { gradient.finish(to, row_stride); }
};

}  // namespace fastweights
