// A matrix written by the delta rule, forward and backward: the cell that delta_rule,
// recurrent_delta_rule, delta_rnn and delta_lstm are built of.
//
//   e = v - W_{t-1}^T k,  u = beta e,  W_t = W_{t-1} + k u^T,  y = W_t^T q
//
// Derivation of the adjoint: kernels/delta_rule/backward.md.
#pragma once
#include "call.h"
#include "elementwise.h"
#include "matrix.h"

namespace fastweights {

// A matrix that lacks its last write, which the next pass over it brings.
template <class T, int P>
struct PendingMatrix {
  using R = Row<T, P>;
  Matrix<T, P> matrix;
  R pending_key, pending_value;
  int64_t keys, values;

  // Zero everywhere.
  void start(int64_t key_size, int64_t value_size) {
    keys = key_size, values = value_size;
    forget();
  }

  void forget() {
    matrix.clear();
    pending_key = pending_value = R::fill(T(0));
  }

  // Where rows are keys.
  void finish(T* to, int64_t row_stride) const {
    matrix.store_written(to, keys, values, row_stride, pending_key, pending_value);
  }
};

// W on the way forward. Lanes are values, rows are keys.
template <class T, int P>
struct DeltaMemory : PendingMatrix<T, P> {
  using Base = PendingMatrix<T, P>;
  using R = Row<T, P>;
  using Base::keys, Base::matrix, Base::pending_key, Base::pending_value, Base::values;

  void start(const T* from, int64_t row_stride, int64_t key_size, int64_t value_size) {
    Base::start(key_size, value_size);
    matrix.load(from, keys, values, row_stride);
  }

  // W_t^T q, the pass over the matrix taken before W_t is written: W_{t-1}^T q + u (k . q).
  FW_INLINE R step(const R& q, const R& k, const R& v, T beta, R& error) {
    R old, answer;
    sweep<T, P, 1, 2>(matrix.row, keys, {{{pending_key.data(), pending_value}}},
                      {{{k.data(), &old}, {q.data(), &answer}}});
    error = v - old;
    pending_key = k;
    pending_value = beta * error;
    return answer + dot(k, q) * pending_value;
  }

  // The sum rule: as above with u = v.
  FW_INLINE R add(const R& q, const R& k, const R& v) {
    R answer;
    sweep<T, P, 1, 1>(matrix.row, keys, {{{pending_key.data(), pending_value}}},
                      {{{q.data(), &answer}}});
    pending_key = k;
    pending_value = v;
    return answer + dot(k, q) * v;
  }
};

template <class T, int P>
struct Written {  // what one step added: key value^T
  Row<T, P> key, value;
};

// The first row of the segment that ends before `end`: the last reset before it, or 0.
inline int64_t segment_start(int64_t end, Steps<const bool> is_first) {
  int64_t begin = end - 1;
  while (begin > 0 && !*is_first[begin]) begin--;
  return begin;
}

// dL/dW on the way back in time; at a reset it is forgotten. Lanes are values, rows are keys.
template <class T, int P>
struct MemoryGradient : PendingMatrix<T, P> {
  using Base = PendingMatrix<T, P>;
  using R = Row<T, P>;
  using Base::keys, Base::matrix, Base::pending_key, Base::pending_value, Base::values;

  void start(const T* final, int64_t row_stride, int64_t key_size, int64_t value_size) {
    Base::start(key_size, value_size);
    if (final) matrix.load(final, keys, values, row_stride);
  }

  // Going back over y = W^T q and W += k u^T, after what the later step left pending: dW += q dy^T;
  // then du = dW^T k, which is returned, and dk = dW u.
  FW_INLINE R step(const R& q, const R& k, const R& u, const R& dy, R& dk) {
    R du;
    sweep<T, P, 2, 1>(matrix.row, keys, {{{pending_key.data(), pending_value}, {q.data(), dy}}},
                      {{{k.data(), &du}}});
    dk = read_across<T, P>(matrix.row, u);
    return du;
  }

  // Going back over the error v - W^T k, before the write: leaves dW -= k dv^T pending.
  FW_INLINE void leave(const R& k, const R& dv) {
    pending_key = k;
    pending_value = T(-1) * dv;
  }

  // As `step`, where nothing is ever left pending: the sum rule.
  FW_INLINE R add(const R& q, const R& k, const R& v, const R& dy, R& dk) {
    R dv;
    sweep<T, P, 1, 1>(matrix.row, keys, {{{q.data(), dy}}}, {{{k.data(), &dv}}});
    dk = read_across<T, P>(matrix.row, v);
    return dv;
  }
};

// W once more forward in time, for the gradients of the vectors that read it. Transposed: lanes are
// keys, rows are values.
template <class T, int P>
struct MemoryReplay : PendingMatrix<T, P> {
  using Base = PendingMatrix<T, P>;
  using R = Row<T, P>;
  using Base::keys, Base::matrix, Base::pending_key, Base::pending_value, Base::values;

  void start(const T* from, int64_t row_stride, int64_t key_size, int64_t value_size) {
    Base::start(key_size, value_size);
    matrix.load_transposed(from, values, keys, row_stride);
  }

  // W_{t-1} times the numbers along its values, of each read; then W_t = W_{t-1} + k u^T.
  template <size_t N>
  FW_INLINE void step(const std::array<Read<T, P>, N>& reads, const R& k, const R& u) {
    sweep<T, P, 1, N>(matrix.row, values, {{{pending_value.data(), pending_key}}}, reads);
    pending_key = k;
    pending_value = u;
  }
};

template <class T, int P>
struct DeltaGradients {
  Row<T, P> q, k, v;
  T beta;
};

// Both going back together, where the gradient of one step needs W and dW at once: W is taken back
// from its final value, write by write.
template <class T, int P>
struct DeltaAdjoint {
  using R = Row<T, P>;
  Matrix<T, P> weights;  // W_t transposed: lanes are keys, rows are values
  MemoryGradient<T, P> gradient;
  int64_t keys, values;

  void start(const T* final_weights, int64_t row_stride, const T* final_grad, int64_t grad_stride,
             int64_t key_size, int64_t value_size) {
    keys = key_size, values = value_size;
    weights.load_transposed(final_weights, values, keys, row_stride);
    gradient.start(final_grad, grad_stride, keys, values);
  }

  // Going back over the reset before row t: the weights are again what the earlier segment left,
  // its first weights and its writes, a few at a time.
  template <class WriteAt>
  __attribute__((noinline)) void cross_reset(int64_t t, Steps<const bool> is_first,
                                             const T* initial, int64_t row_stride,
                                             WriteAt write_at) {
    gradient.forget();
    if (t == 0) return;
    int64_t begin = segment_start(t, is_first);
    if (*is_first[begin])
      weights.clear();
    else
      weights.load_transposed(initial, values, keys, row_stride);
    constexpr size_t kWrites = 4;
    for (; begin < t; begin += kWrites) {
      std::array<Row<T, P>, kWrites> along;
      std::array<Write<T, P>, kWrites> writes;
      for (size_t w = 0; w < kWrites; w++) {
        Written<T, P> written = {R::fill(T(0)), R::fill(T(0))};
        if (begin + int64_t(w) < t) written = write_at(begin + w);
        along[w] = written.value;
        writes[w] = {along[w].data(), written.key};
      }
      weights.write(values, writes);
    }
  }

  // One step back in time; `error` and `beta` are those of the forward step.
  FW_INLINE DeltaGradients<T, P> step(const R& q, const R& k, const R& error, T beta, const R& dy) {
    DeltaGradients<T, P> d;
    R update = beta * error, undo = T(-1) * update;
    R du = gradient.step(q, k, update, dy, d.k);
    d.v = beta * du;
    d.beta = dot(du, error);
    R from_output, from_error;
    sweep<T, P, 1, 2>(weights.row, values, {{{undo.data(), k}}},
                      {{{dy.data(), &from_output}, {d.v.data(), &from_error}}});
    d.q = from_output + dot(update, dy) * k;
    d.k = d.k - from_error;
    gradient.leave(k, d.v);
    return d;
  }

  void finish(T* to, int64_t row_stride) const { gradient.finish(to, row_stride); }
};

}  // namespace fastweights
