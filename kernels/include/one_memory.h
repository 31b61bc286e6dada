// Recurrences with one memory per head as the only link between steps, forward and backward:
//
//   W_t = a W_{t-1} + k u^T,   y = W_t^T q
//   a = 1, or exp(log_decay);   u = v, or beta (v - a W_{t-1}^T k)
//
// The four combinations are linear_attention, delta_rule and their forms with decay. Derivations:
// kernels/delta_rule/backward.md, kernels/gated_delta_rule/backward.md.
#pragma once
#include <type_traits>

#include "call.h"
#include "delta_memory.h"
#include "fading_memory.h"

namespace fastweights {

enum class Rule { kSum, kDelta };
enum class Memory { kKeeps, kFades };

template <Rule rule, Memory memory>
struct OneMemory {
  static constexpr bool kDelta = rule == Rule::kDelta, kFades = memory == Memory::kFades;
  using Keep = std::conditional_t<kFades, T, Whole>;
  using Key = Row<T, PK>;
  using Value = Row<T, PV>;

  // The factor by which step t decays the memory.
  static FW_INLINE Keep kept(const Steps<const T>& log_decay, int64_t t) {
    if constexpr (kFades)
      return T(__builtin_exp(*log_decay[t]));
    else
      return Keep();
  }

  // The inputs (E = const T) or their gradients (E = T), where they exist.
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

  // The rows of one head that a backward pass reads and writes.
  struct Rows {
    int64_t keys, values;
    Steps<const T> q, k, v, beta, log_decay, written, grad_y;
    Steps<const bool> is_first;
    Steps<T> grad_q, grad_k, grad_v, grad_beta, grad_log_decay;

    // The update is u = v, or beta times the error, which already includes v.
    FW_INLINE Value update(int64_t t, const Value& row) const {
      if constexpr (kDelta)
        return *beta[t] * row;
      else
        return row;
    }

    FW_INLINE void prefetch_back(int64_t t) const {
      prefetch_rows(PK, t, q, k, grad_k);
      prefetch_rows(PV, t, written, grad_y, grad_v);
    }

    FW_INLINE void prefetch_again(int64_t t) const {
      prefetch_rows(PK, t, k, grad_q);
      prefetch_rows(PV, t, written, grad_y);
      if constexpr (kDelta) {
        prefetch_rows(PK, t, grad_k);
        prefetch_rows(PV, t, grad_v);
      }
    }
  };

  // Back in time: dv, dbeta, and the part of dk due to the write. `keep` is the later row's decay.
  template <class Gradient>
  static FW_INLINE void go_back(const Rows& row, int64_t begin, int64_t end, Gradient& gradient,
                                Keep& keep) {
    for (int64_t t = end - 1; t >= begin; t--) {
      row.prefetch_back(t - kAhead);
      const Key query = Key::load(row.q[t], row.keys), key = Key::load(row.k[t], row.keys);
      const Value written = Value::load(row.written[t], row.values);
      const Value dy = Value::load(row.grad_y[t], row.values);
      Key dk;
      if constexpr (kFades) gradient.turn_to(t);
      if constexpr (kDelta) {
        const Value du = gradient.step(query, key, row.update(t, written), dy, dk, keep);
        const Value dv = *row.beta[t] * du;
        gradient.leave_error(key, dv);
        dv.store(row.grad_v[t], row.values);
        *row.grad_beta[t] = dot(du, written);
      } else {
        gradient.add(query, key, written, dy, dk, keep).store(row.grad_v[t], row.values);
      }
      dk.store(row.grad_k[t], row.keys);
      keep = kept(row.log_decay, t);
      if (*row.is_first[t]) {
        gradient.forget();
        keep = Keep(1);
      }
    }
  }

  // Forward again: dq, the part of dk due to the error, and the decay's gradient.
  template <class Gradient>
  static FW_INLINE void go_forward(const Rows& row, int64_t begin, int64_t end,
                                   MemoryReplay<T, PV, PK>& weights, const Gradient& gradient) {
    for (int64_t t = begin; t < end; t++) {
      row.prefetch_again(t + kAhead);
      if (*row.is_first[t]) weights.forget();
      const Keep left = kept(row.log_decay, t);
      const Key key = Key::load(row.k[t], row.keys);
      const Value u = row.update(t, Value::load(row.written[t], row.values));
      const Value dy = Value::load(row.grad_y[t], row.values);
      Key dq, from_error;
      if constexpr (kDelta) {
        const Value dv = Value::load(row.grad_v[t], row.values);
        weights.template step<2>({{{dy.data(), &dq}, {dv.data(), &from_error}}}, key, u, left);
        (Key::load(row.grad_k[t], row.keys) - from_error).store(row.grad_k[t], row.keys);
      } else {
        weights.template step<1>({{{dy.data(), &dq}}}, key, u, left);
      }
      (dq + dot(u, dy) * key).store(row.grad_q[t], row.keys);
      if constexpr (kFades) {
        T decay = gradient.inner(t, weights.matrix);
        if constexpr (kDelta) decay -= dot(key, from_error);
        *row.grad_log_decay[t] = decay;
      }
    }
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
      const int64_t K = size.keys, V = size.values, time = size.time;
      const auto v = inputs.v.steps(b, h);
      const Rows row = {
          K, V, inputs.q.steps(b, h), inputs.k.steps(b, h), v, inputs.betas(b, h),
          inputs.log_decays(b, h), kDelta ? errors.steps(b, h) : v, grad_ys.steps(b, h),
          resets.steps(b), gradients.q.steps(b, h), gradients.k.steps(b, h),
          gradients.v.steps(b, h), gradients.betas(b, h), gradients.log_decays(b, h)};
      const T *first = initial.at(b, h), *last = grad_final.at_or_null(b, h);
      auto& weights = workspace<MemoryReplay<T, PV, PK>>();
      Keep keep(1);
      prefetch_last(time, [&](int64_t t) { row.prefetch_back(t); });
      if constexpr (kFades) {
        auto& starts = workspace<Starts<T, PV, PK>>();
        starts.start(time, first, initial.stride[2], K, V, row.is_first, [row](int64_t t) {
          const Value u = row.update(t, Value::load(row.written[t], row.values));
          return typename Starts<T, PV, PK>::Step{Key::load(row.k[t], row.keys), u,
                                                  kept(row.log_decay, t)};
        });
        auto& gradient = workspace<FadingGradient<T, PV, PK>>();
        gradient.start(time, last, grad_final.stride[2], K, V);
        for (int64_t end = time; end > 0;) {
          const int64_t begin = (end - 1) / kStretch * kStretch;
          go_back(row, begin, end, gradient, keep);
          weights.start(starts.before(begin), K, V);
          go_forward(row, begin, end, weights, gradient);
          end = begin;
        }
        gradient.finish(grad_initial.at(b, h), grad_initial.stride[2], keep);
      } else {
        auto& gradient = workspace<MemoryGradient<T, PV, PK>>();
        gradient.start(last, grad_final.stride[2], K, V);
        go_back(row, 0, time, gradient, keep);
        gradient.finish(grad_initial.at(b, h), grad_initial.stride[2], keep);
        prefetch_first(time, [&](int64_t t) { row.prefetch_again(t); });
        weights.start(first, initial.stride[2], K, V);
        go_forward(row, 0, time, weights, gradient);
      }
    });
  }
};

}  // namespace fastweights
