// The Delta LSTM on CPUs: three gates, each the sum of two delta memories' outputs.
#include "two_memories.h"

using namespace fastweights;
using R = Row<T, P>;

enum class Version : int64_t { A = 0, B = 1, C = 2, D = 3 };
enum Gate { kMain = 0, kForget = 1, kOutput = 2, kGates = 3 };

struct Forward {
  ForwardMemory memory[kGates], recurrent[kGates];
};

struct Backward {
  BackwardMemory memory[kGates], recurrent[kGates];
};

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs<const T> inputs(call);
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  auto initial_cell = call.tensor<const T>(), initial_output = call.tensor<const T>();
  auto ys = call.tensor<T>(), final = call.tensor<T>(), final_recurrent = call.tensor<T>();
  auto final_cell = call.tensor<T>(), final_output = call.tensor<T>();
  auto errors = call.tensor<T>(), recurrent_errors = call.tensor<T>();
  auto queries = call.tensor<T>(), gates = call.tensor<T>();
  auto cells = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const R mask = live_lanes<T, P>(V);
    const auto is_first = resets.steps(b);
    const auto y = ys.steps(b, h);
    const auto saved_query = queries.steps(b, h), saved_cell = cells.steps(b, h);
    Steps<const T> q[kGates];
    Steps<T> saved_gate[kGates];
    auto& [memory, recurrent] = workspace<Forward>();
    for (int g = 0; g < kGates; g++) {
      q[g] = inputs.q.steps(b, h, g), saved_gate[g] = gates.steps(b, h, g);
      memory[g].in = inputs.writes(b, h, g), memory[g].errors = errors.steps(b, h, g);
      memory[g].start(initial.at(b, h, g), initial.stride[3], K, V);
      recurrent[g].in = inputs.recurrent_writes(b, h, g);
      recurrent[g].errors = recurrent_errors.steps(b, h, g);
      recurrent[g].start(initial_recurrent.at(b, h, g), initial_recurrent.stride[3], V, V);
    }
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(kGates * P, t, q[0], memory[0].in.k, memory[0].in.v, recurrent[0].in.k,
                    recurrent[0].in.v);
      prefetch_rows(kGates * P, t, memory[0].errors, recurrent[0].errors, saved_gate[0]);
    };
    prefetch_first(size.time, prefetch);
    R cell = R::load(initial_cell.at(b, h), V), output = R::load(initial_output.at(b, h), V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) {
        for (auto& each : memory) each.forget();
        for (auto& each : recurrent) each.forget();
        cell = output = R::fill(T(0));
      }
      R query = version == Version::A ? output : softmax(output, mask);
      R forth[kGates], gate[kGates];
      for (int g = 0; g < kGates; g++) {
        forth[g] = memory[g].step(t, R::load(q[g][t], K));
        gate[g] = forth[g] + recurrent[g].step(t, query);
        if (g != kMain || version != Version::D) gate[g] = sigmoid(gate[g]);
        if (saved_gate[g]) gate[g].store(saved_gate[g][t], V);
      }
      R cell_before = cell;
      cell = gate[kMain] + gate[kForget] * (cell_before - gate[kMain]);
      output = cell * gate[kOutput];
      if (version == Version::A) output = softmax(output, mask);
      if (version == Version::C) output = output + forth[kMain];
      output.store(y[t], V);
      if (!saved_query) continue;
      query.store(saved_query[t], V);
      cell_before.store(saved_cell[t], V);
    }
    cell.store(final_cell.at(b, h), V);
    output.store(final_output.at(b, h), V);
    for (int g = 0; g < kGates; g++) {
      memory[g].finish(final.at(b, h, g), final.stride[3]);
      recurrent[g].finish(final_recurrent.at(b, h, g), final_recurrent.stride[3]);
    }
  });
}

// From the gradient of y to the gradients of the three gates' pre-activations (backward.md).
struct GateGradients {
  R gate[kGates], carried_cell;
};

FW_APART GateGradients through_gates(Version version, const R (&gate)[kGates],
                                     const R& cell_before, const R& dy, const R& dcell,
                                     const R& mask) {
  R one = R::fill(T(1)), u = gate[kMain], f = gate[kForget], o = gate[kOutput];
  R cell = u + f * (cell_before - u), dproduct = dy;
  if (version == Version::A) dproduct = softmax_adjoint(softmax(cell * o, mask), dy);
  R dc = dcell + dproduct * o;
  GateGradients d;
  d.gate[kOutput] = dproduct * cell * o * (one - o);
  d.gate[kForget] = dc * (cell_before - u) * f * (one - f);
  d.gate[kMain] = dc * (one - f);
  if (version != Version::D) d.gate[kMain] = d.gate[kMain] * u * (one - u);
  d.carried_cell = dc * f;
  return d;
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs<const T> inputs(call);
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  for (int vector = 0; vector < 2; vector++) call.tensor<const T>();
  auto errors = call.tensor<const T>(), recurrent_errors = call.tensor<const T>();
  auto queries = call.tensor<const T>(), all_gates = call.tensor<const T>();
  auto cells = call.tensor<const T>();
  auto final = call.tensor<const T>(), final_recurrent = call.tensor<const T>();
  auto grad_ys = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_final_recurrent = call.tensor<const T>(), grad_final_cell = call.tensor<const T>();
  auto grad_final_output = call.tensor<const T>();
  Inputs<T> gradients(call);
  auto grad_initial = call.tensor<T>(), grad_initial_recurrent = call.tensor<T>();
  auto grad_initial_cell = call.tensor<T>(), grad_initial_output = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const R mask = live_lanes<T, P>(V);
    const auto is_first = resets.steps(b);
    const auto recurrent_query = queries.steps(b, h), cell_before = cells.steps(b, h);
    const auto grad_y = grad_ys.steps(b, h);
    Steps<const T> q[kGates], gates[kGates];
    Steps<T> grad_q[kGates];
    auto& [memory, recurrent] = workspace<Backward>();
    for (int g = 0; g < kGates; g++) {
      q[g] = inputs.q.steps(b, h, g), grad_q[g] = gradients.q.steps(b, h, g);
      gates[g] = all_gates.steps(b, h, g);
      memory[g].in = inputs.writes(b, h, g), memory[g].errors = errors.steps(b, h, g);
      memory[g].grads = gradients.writes(b, h, g);
      recurrent[g].in = inputs.recurrent_writes(b, h, g);
      recurrent[g].errors = recurrent_errors.steps(b, h, g);
      recurrent[g].grads = gradients.recurrent_writes(b, h, g);
    }
    const auto start = [&](bool again) FW_APART {
      for (int g = 0; g < kGates; g++) {
        memory[g].start(size.time, final.at(b, h, g), final.stride[3],
                        grad_final.at_or_null(b, h, g), grad_final.stride[3], K, V,
                        {is_first, initial.at(b, h, g), initial.stride[3]}, again);
        recurrent[g].start(size.time, final_recurrent.at(b, h, g), final_recurrent.stride[3],
                           grad_final_recurrent.at_or_null(b, h, g),
                           grad_final_recurrent.stride[3], V, V,
                           {is_first, initial_recurrent.at(b, h, g), initial_recurrent.stride[3]},
                           again);
      }
    };
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(kGates * P, t, q[0], memory[0].in.k, recurrent[0].in.k, memory[0].errors,
                    recurrent[0].errors, gates[0]);
      prefetch_rows(kGates * P, t, grad_q[0], memory[0].grads.k, memory[0].grads.v,
                    recurrent[0].grads.k, recurrent[0].grads.v);
    };
    R carried, carried_cell;
    walk_back([&](bool again) __attribute__((always_inline)) {
      start(again);
      prefetch_last(size.time, prefetch);
      carried = R::load_or_zero(grad_final_output.at_or_null(b, h), V);
      carried_cell = R::load_or_zero(grad_final_cell.at_or_null(b, h), V);
      for (int64_t t = size.time - 1; t >= 0; t--) {
        prefetch(t - kAhead);
        R dy = carried + R::load(grad_y[t], V);
        R query = R::load(recurrent_query[t], V), dquery = R::fill(T(0)), gate[kGates];
        for (int g = 0; g < kGates; g++) gate[g] = R::load(gates[g][t], V);
        GateGradients d =
            through_gates(version, gate, R::load(cell_before[t], V), dy, carried_cell, mask);
        for (int g = 0; g < kGates; g++) {
          R dforth = version == Version::C && g == kMain ? d.gate[g] + dy : d.gate[g];
          memory[g].step(t, R::load(q[g][t], K), dforth).store(grad_q[g][t], K);
          dquery = dquery + recurrent[g].step(t, query, d.gate[g]);
        }
        carried = version == Version::A ? dquery : softmax_adjoint(query, dquery);
        carried_cell = d.carried_cell;
        if (t > 0 && !*is_first[t]) continue;
        for (auto& each : memory) each.arrive(t);
        for (auto& each : recurrent) each.arrive(t);
        if (!*is_first[t]) continue;
        for (auto& each : memory) each.cross_reset(t);
        for (auto& each : recurrent) each.cross_reset(t);
        carried = carried_cell = R::fill(T(0));
      }
      bool arrived = true;
      for (int g = 0; g < kGates; g++)
        arrived = arrived && memory[g].arrivals.all() && recurrent[g].arrivals.all();
      return arrived;
    });
    for (int g = 0; g < kGates; g++) {
      memory[g].finish(grad_initial.at(b, h, g), grad_initial.stride[3]);
      recurrent[g].finish(grad_initial_recurrent.at(b, h, g), grad_initial_recurrent.stride[3]);
    }
    carried.store(grad_initial_output.at(b, h), V);
    carried_cell.store(grad_initial_cell.at(b, h), V);
  });
}
