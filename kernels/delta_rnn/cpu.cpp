// The Delta RNN on CPUs: two delta memories, the second one asked with the previous output.
#include "two_memories.h"

using namespace fastweights;
using R = Row<T, P>;

enum class Version : int64_t { A = 0, B = 1 };

struct Forward {
  DeltaMemory<T, P> memory, recurrent;
};

struct Backward {
  DeltaAdjoint<T, P> memory, recurrent;
};

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs<const T> inputs(call);
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  auto initial_output = call.tensor<const T>();
  auto ys = call.tensor<T>(), final = call.tensor<T>(), final_recurrent = call.tensor<T>();
  auto final_output = call.tensor<T>();
  auto errors = call.tensor<T>(), recurrent_errors = call.tensor<T>();
  auto queries = call.tensor<T>(), outputs = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const R mask = live_lanes<T, P>(V);
    const auto in = inputs.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto y = ys.steps(b, h), saved_error = errors.steps(b, h);
    const auto saved_recurrent_error = recurrent_errors.steps(b, h);
    const auto saved_query = queries.steps(b, h), saved_output = outputs.steps(b, h);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, in.q, in.k, in.v, in.recurrent_k, in.recurrent_v, y, saved_error,
                    saved_recurrent_error, saved_query, saved_output);
    };
    prefetch_first(size.time, prefetch);
    auto& [memory, recurrent] = workspace<Forward>();
    memory.start(initial.at(b, h), initial.stride[2], K, V);
    recurrent.start(initial_recurrent.at(b, h), initial_recurrent.stride[2], V, V);
    R output = R::load(initial_output.at(b, h), V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) {
        memory.forget();
        recurrent.forget();
        output = R::fill(T(0));
      }
      R query = version == Version::B ? softmax(output, mask) : output;
      R error, recurrent_error;
      R forth = memory.step(R::load(in.q[t], K), R::load(in.k[t], K), R::load(in.v[t], V),
                            *in.beta[t], error);
      R back = recurrent.step(query, R::load(in.recurrent_k[t], V), R::load(in.recurrent_v[t], V),
                              *in.recurrent_beta[t], recurrent_error);
      output = version == Version::B ? forth + back : softmax(forth + back, mask);
      output.store(y[t], V);
      if (!saved_error) continue;
      error.store(saved_error[t], V);
      recurrent_error.store(saved_recurrent_error[t], V);
      query.store(saved_query[t], V);
      output.store(saved_output[t], V);
    }
    output.store(final_output.at(b, h), V);
    memory.finish(final.at(b, h), final.stride[2]);
    recurrent.finish(final_recurrent.at(b, h), final_recurrent.stride[2]);
  });
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs<const T> inputs(call);
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  call.tensor<const T>();
  auto errors = call.tensor<const T>(), recurrent_errors = call.tensor<const T>();
  auto queries = call.tensor<const T>(), outputs = call.tensor<const T>();
  auto final = call.tensor<const T>(), final_recurrent = call.tensor<const T>();
  auto grad_ys = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_final_recurrent = call.tensor<const T>(), grad_final_output = call.tensor<const T>();
  Inputs<T> gradients(call);
  auto grad_initial = call.tensor<T>(), grad_initial_recurrent = call.tensor<T>();
  auto grad_initial_output = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const auto in = inputs.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto error = errors.steps(b, h), recurrent_error = recurrent_errors.steps(b, h);
    const auto recurrent_query = queries.steps(b, h), output = outputs.steps(b, h);
    const auto grad_y = grad_ys.steps(b, h);
    const auto out = gradients.steps(b, h);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, in.q, in.k, in.recurrent_k, error, recurrent_error, recurrent_query,
                    grad_y);
      prefetch_rows(P, t, out.q, out.k, out.v, out.recurrent_k, out.recurrent_v);
    };
    prefetch_last(size.time, prefetch);
    auto& [memory, recurrent] = workspace<Backward>();
    memory.start(final.at(b, h), final.stride[2], grad_final.at_or_null(b, h), grad_final.stride[2], K, V);
    recurrent.start(final_recurrent.at(b, h), final_recurrent.stride[2],
                    grad_final_recurrent.at_or_null(b, h), grad_final_recurrent.stride[2], V, V);
    R carried = R::load_or_zero(grad_final_output.at_or_null(b, h), V);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      prefetch(t - kAhead);
      R dy = carried + R::load(grad_y[t], V);
      R query = R::load(recurrent_query[t], V);
      if (version == Version::A) dy = softmax_adjoint(R::load(output[t], V), dy);
      auto grad = memory.step(R::load(in.q[t], K), R::load(in.k[t], K), R::load(error[t], V),
                              *in.beta[t], dy);
      auto recurrent_grad = recurrent.step(query, R::load(in.recurrent_k[t], V),
                                           R::load(recurrent_error[t], V), *in.recurrent_beta[t],
                                           dy);
      grad.q.store(out.q[t], K);
      grad.k.store(out.k[t], K);
      grad.v.store(out.v[t], V);
      *out.beta[t] = grad.beta;
      recurrent_grad.k.store(out.recurrent_k[t], V);
      recurrent_grad.v.store(out.recurrent_v[t], V);
      *out.recurrent_beta[t] = recurrent_grad.beta;
      carried = version == Version::B ? softmax_adjoint(query, recurrent_grad.q) : recurrent_grad.q;
      if (!*is_first[t]) continue;
      memory.cross_reset(t, is_first, initial.at(b, h), initial.stride[2], [&](int64_t r) {
        return Written<T, P>{R::load(in.k[r], K), *in.beta[r] * R::load(error[r], V)};
      });
      recurrent.cross_reset(
          t, is_first, initial_recurrent.at(b, h), initial_recurrent.stride[2], [&](int64_t r) {
            return Written<T, P>{R::load(in.recurrent_k[r], V),
                                 *in.recurrent_beta[r] * R::load(recurrent_error[r], V)};
          });
      carried = R::fill(T(0));
    }
    memory.finish(grad_initial.at(b, h), grad_initial.stride[2]);
    recurrent.finish(grad_initial_recurrent.at(b, h), grad_initial_recurrent.stride[2]);
    carried.store(grad_initial_output.at(b, h), V);
  });
}
