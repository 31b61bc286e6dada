// One memory a head, through which alone its steps depend on each other, forward and backward:
//
//   W_t = a W_{t-1} + k u^T,   y = W_t^T q
//   a = 1, or exp(log_decay);   u = v, or beta (v - a W_{t-1}^T k)
//
// The four choices are linear_attention, delta_rule and their forms with decay. Derivations:
// kernels/delta_rule/backward.md, kernels/gated_delta_rule/backward.md.
#pragma once
#include <type_traits>

#include "call.h"
#include "delta_memory.h"

namespace fastweights {

enum class Rule { kSum, kDelta };
enum class Memory { kKeeps, kFades };

template <Rule rule, Memory memory>
struct OneMemory {
  static constexpr bool kDelta = rule == Rule::kDelta, kFades = memory == Memory::kFades;
  using Keep = std::conditional_t<kFades, T, Whole>;
  using Key = Row<T, PK>;
  using Value = Row<T, PV>;

  // What is left at step t of what was there before it.
  static FW_INLINE Keep kept(const Steps<const T>& log_decay, int64_t t) {
    if constexpr (kFades)
      return T(__builtin_exp(*log_decay[t]));
    else
      return Keep();
  }

  // The inputs (E = const T) or their gradients (E = T), as far as there are such.
  template <class E>
  struct Inputs {
    Tensor<E> q, k, v, beta{}, log_decay{};

    explicit Inputs(Call& call)
        : q(call.tensor<E>()), k(call.tensor<E>()), v(call.tensor<E>()) {
      if constexpr (kDelta) beta = call.tensor<E>();
      if constexpr (kFades) log_decay = call.tensor<E>();
    }

    Steps<E> betas(int64_t b, int64_t h) const {
      if constexpr (kDelta) return beta.steps(b, h);
      return {};
    }

    Steps<E> log_decays(int64_t b, int64_t h) const {
      if constexpr (kFades) return log_decay.steps(b, h);
      return {};
    }
  };

  static void forward(const int64_t* layout, void* const* addresses) {
    Call call(layout, addresses);
    Sizes size(call);
    Inputs<const T> inputs(call);
    auto resets = call.tensor<const bool>();
    auto initial = call.tensor<const T>();
    auto ys = call.tensor<T>(), final = call.tensor<T>();
    Tensor<T> errors{};
    if constexpr (kDelta) errors = call.tensor<T>();

    size.for_each_head([&](int64_t b, int64_t h) {
      const int64_t K = size.keys, V = size.values;
      const auto q = inputs.q.steps(b, h), k = inputs.k.steps(b, h), v = inputs.v.steps(b, h);
      const auto beta = inputs.betas(b, h), log_decay = inputs.log_decays(b, h);
      const auto is_first = resets.steps(b);
      const auto y = ys.steps(b, h);
      const auto saved_error = errors ? errors.steps(b, h) : Steps<T>{};
      const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
        prefetch_rows(PK, t, q, k);
        prefetch_rows(PV, t, v, y, saved_error);
      };
      prefetch_first(size.time, prefetch);
      auto& weights = workspace<DeltaMemory<T, PV, PK>>();
      weights.start(initial.at(b, h), initial.stride[2], K, V);
      for (int64_t t = 0; t < size.time; t++) {
        prefetch(t + kAhead);
        if (*is_first[t]) weights.forget();
        const Keep keep = kept(log_decay, t);
        const Key query = Key::load(q[t], K), key = Key::load(k[t], K);
        const Value value = Value::load(v[t], V);
        if constexpr (kDelta) {
          Value error;
          weights.step(query, key, value, *beta[t], error, keep).store(y[t], V);
          if (saved_error) error.store(saved_error[t], V);
        } else {
          weights.add(query, key, value, keep).store(y[t], V);
        }
      }
      weights.finish(final.at(b, h), final.stride[2]);
    });
  }

  static void backward(const int64_t* layout, void* const* addresses) {
    Call call(layout, addresses);
    Sizes size(call);
    Inputs<const T> inputs(call);
    auto resets = call.tensor<const bool>();
    auto initial = call.tensor<const T>();
    Tensor<const T> errors{};
    if constexpr (kDelta) errors = call.tensor<const T>();
    auto grad_ys = call.tensor<const T>(), grad_final = call.tensor<const T>();
    Inputs<T> gradients(call);
    auto grad_initial = call.tensor<T>();

    size.for_each_head([&](int64_t b, int64_t h) {
      const int64_t K = size.keys, V = size.values;
      const auto q = inputs.q.steps(b, h), k = inputs.k.steps(b, h), v = inputs.v.steps(b, h);
      const auto beta = inputs.betas(b, h), log_decay = inputs.log_decays(b, h);
      const auto is_first = resets.steps(b);
      // The update is u = v, or beta times the error, which holds v.
      const auto written = kDelta ? errors.steps(b, h) : v, grad_y = grad_ys.steps(b, h);
      const auto grad_q = gradients.q.steps(b, h), grad_k = gradients.k.steps(b, h);
      const auto grad_v = gradients.v.steps(b, h), grad_beta = gradients.betas(b, h);
      const auto grad_log_decay = gradients.log_decays(b, h);
      const auto update = [&](int64_t t, const Value& row) __attribute__((always_inline)) {
        if constexpr (kDelta)
          return *beta[t] * row;
        else
          return row;
      };

      // Back in time: dv, dbeta, and the part of dk that is owed to the write.
      const auto prefetch_back = [&](int64_t t) __attribute__((always_inline)) {
        prefetch_rows(PK, t, q, k, grad_k);
        prefetch_rows(PV, t, written, grad_y, grad_v);
      };
      prefetch_last(size.time, prefetch_back);
      auto& gradient = workspace<MemoryGradient<T, PV, PK>>();
      gradient.start(grad_final.at_or_null(b, h), grad_final.stride[2], K, V);
      Keep keep(1);
      for (int64_t t = size.time - 1; t >= 0; t--) {
        prefetch_back(t - kAhead);
        const Key query = Key::load(q[t], K), key = Key::load(k[t], K);
        const Value row = Value::load(written[t], V), dy = Value::load(grad_y[t], V);
        Key dk;
        if constexpr (kDelta) {
          const Value du = gradient.step(query, key, update(t, row), dy, dk, keep);
          const Value dv = *beta[t] * du;
          gradient.leave_error(key, dv);
          dv.store(grad_v[t], V);
          *grad_beta[t] = dot(du, row);
        } else {
          gradient.add(query, key, row, dy, dk, keep).store(grad_v[t], V);
        }
        dk.store(grad_k[t], K);
        keep = kept(log_decay, t);
        if (*is_first[t]) {
          gradient.forget();
          keep = Keep(1);
        }
      }
      gradient.finish(grad_initial.at(b, h), grad_initial.stride[2], keep);

      // Forward again: dq, and the part of dk that is owed to the error.
      const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
        prefetch_rows(PK, t, k, grad_q);
        prefetch_rows(PV, t, written, grad_y);
        if constexpr (kDelta) {
          prefetch_rows(PK, t, grad_k);
          prefetch_rows(PV, t, grad_v);
        }
      };
      prefetch_first(size.time, prefetch);
      auto& weights = workspace<MemoryReplay<T, PV, PK>>();
      weights.start(initial.at(b, h), initial.stride[2], K, V);
      for (int64_t t = 0; t < size.time; t++) {
        prefetch(t + kAhead);
        if (*is_first[t]) weights.forget();
        const Keep left = kept(log_decay, t);
        const Key key = Key::load(k[t], K);
        const Value u = update(t, Value::load(written[t], V)), dy = Value::load(grad_y[t], V);
        Key dq;
        if constexpr (kDelta) {
          const Value dv = Value::load(grad_v[t], V);
          Key from_error;
          weights.template step<2>({{{dy.data(), &dq}, {dv.data(), &from_error}}}, key, u, left);
          (Key::load(grad_k[t], K) - from_error).store(grad_k[t], K);
        } else {
          weights.template step<1>({{{dy.data(), &dq}}}, key, u, left);
        }
        dq = dq + dot(u, dy) * key;
        dq.store(grad_q[t], K);
        if constexpr (kFades)
          *grad_log_decay[t] = dot(dq, Key::load(q[t], K)) -
                               dot(Value::load(grad_v[t], V), Value::load(v[t], V));
      }

      // The inner product of W and dL/dW; each step changes it by known terms.
      if constexpr (kFades) {
        T later = grad_final ? weights.inner(grad_final.at(b, h), grad_final.stride[2]) : T(0);
        for (int64_t t = size.time - 1; t >= 0; t--) {
          later += *grad_log_decay[t];
          if (*is_first[t]) later = T(0);
          *grad_log_decay[t] = later;
        }
      }
    });
  }
};

}  // namespace fastweights
