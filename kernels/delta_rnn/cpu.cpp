// The Delta RNN on CPUs: two delta memories; the second one's query is the previous output.
#include "two_memories.h"

using namespace fastweights;
using R = Row<T, P>;

enum class Version : int64_t { A = 0, B = 1 };

struct Forward {
  ForwardMemory memory, recurrent;
};

struct Backward {
  BackwardMemory memory, recurrent;
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
    const auto is_first = resets.steps(b);
    const auto q = inputs.q.steps(b, h);
    const auto y = ys.steps(b, h);
    const auto saved_query = queries.steps(b, h), saved_output = outputs.steps(b, h);
    auto& [memory, recurrent] = workspace<Forward>();
    memory.in = inputs.writes(b, h), memory.errors = errors.steps(b, h);
    memory.start(initial.at(b, h), initial.stride[2], K, V);
    recurrent.in = inputs.recurrent_writes(b, h), recurrent.errors = recurrent_errors.steps(b, h);
    recurrent.start(initial_recurrent.at(b, h), initial_recurrent.stride[2], V, V);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, q, memory.in.k, memory.in.v, recurrent.in.k, recurrent.in.v, y,
                    memory.errors, recurrent.errors, saved_query, saved_output);
    };
    prefetch_first(size.time, prefetch);
    R output = R::load(initial_output.at(b, h), V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) {
        memory.forget();
        recurrent.forget();
        output = R::fill(T(0));
      }
      R query = version == Version::B ? softmax(output, mask) : output;
      output = memory.step(t, R::load(q[t], K)) + recurrent.step(t, query);
      if (version == Version::A) output = softmax(output, mask);
      output.store(y[t], V);
      if (!saved_query) continue;
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
    const auto is_first = resets.steps(b);
    const auto q = inputs.q.steps(b, h), recurrent_query = queries.steps(b, h);
    const auto output = outputs.steps(b, h), grad_y = grad_ys.steps(b, h);
    const auto grad_q = gradients.q.steps(b, h);
    auto& [memory, recurrent] = workspace<Backward>();
    memory.in = inputs.writes(b, h), memory.errors = errors.steps(b, h);
    memory.grads = gradients.writes(b, h);
    recurrent.in = inputs.recurrent_writes(b, h), recurrent.errors = recurrent_errors.steps(b, h);
    recurrent.grads = gradients.recurrent_writes(b, h);
    const Beginnings<T> beginnings{is_first, initial.at(b, h), initial.stride[2]};
    const Beginnings<T> recurrent_beginnings{is_first, initial_recurrent.at(b, h),
                                             initial_recurrent.stride[2]};
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, q, memory.in.k, memory.errors, recurrent.in.k, recurrent.errors,
                    recurrent_query, grad_y);
      prefetch_rows(P, t, grad_q, memory.grads.k, memory.grads.v, recurrent.grads.k,
                    recurrent.grads.v);
    };
    R carried;
    walk_back([&](bool again) __attribute__((always_inline)) {
      memory.start(size.time, final.at(b, h), final.stride[2], grad_final.at_or_null(b, h),
                   grad_final.stride[2], K, V, beginnings, again);
      recurrent.start(size.time, final_recurrent.at(b, h), final_recurrent.stride[2],
                      grad_final_recurrent.at_or_null(b, h), grad_final_recurrent.stride[2], V, V,
                      recurrent_beginnings, again);
      prefetch_last(size.time, prefetch);
      carried = R::load_or_zero(grad_final_output.at_or_null(b, h), V);
      for (int64_t t = size.time - 1; t >= 0; t--) {
        prefetch(t - kAhead);
        R dy = carried + R::load(grad_y[t], V);
        R query = R::load(recurrent_query[t], V);
        if (version == Version::A) dy = softmax_adjoint(R::load(output[t], V), dy);
        memory.step(t, R::load(q[t], K), dy).store(grad_q[t], K);
        carried = recurrent.step(t, query, dy);
        if (version == Version::B) carried = softmax_adjoint(query, carried);
        if (t > 0 && !*is_first[t]) continue;
        memory.arrive(t);
        recurrent.arrive(t);
        if (!*is_first[t]) continue;
        memory.cross_reset(t);
        recurrent.cross_reset(t);
        carried = R::fill(T(0));
      }
      return memory.arrivals.all() && recurrent.arrivals.all();
    });
    memory.finish(grad_initial.at(b, h), grad_initial.stride[2]);
    recurrent.finish(grad_initial_recurrent.at(b, h), grad_initial_recurrent.stride[2]);
    carried.store(grad_initial_output.at(b, h), V);
  });
}
