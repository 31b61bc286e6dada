// The element-wise LSTM's cell, forward and backward (see reference.py for the definition,
// backward.md for the gradient). A thread handles one unit of one batch column, independently of
// the others. A block is a warp of neighbouring units; `option` is the total number of units.
#include "warp.cuh"

struct Unit {
  int unit, batch, time;
  long long units, columns;

  __device__ explicit Unit(const Sizes& sizes)
      : unit(blockIdx.x % static_cast<int>(sizes.heads) * WARP + threadIdx.x),
        batch(blockIdx.x / static_cast<int>(sizes.heads)), time(static_cast<int>(sizes.time)),
        units(sizes.option), columns(sizes.batch) {}

  __device__ bool is_there() const { return unit < units; }
  // An entry of [T, B, D]; zero outside the unroll.
  __device__ float load(const View& view, int t) const {
    if (t < 0 || t >= time) return 0.f;
    return view.data[t * view.strides[0] + batch * view.strides[1] + unit * view.strides[2]];
  }
  // An entry of [B, D]; weights have a batch stride of zero.
  __device__ float load(const View& view) const {
    return view.data[batch * view.strides[0] + unit * view.strides[1]];
  }
  __device__ bool is_first(const Flags& flags, int t) const {
    if (t < 0 || t >= time) return false;
    return flags.data[t * flags.strides[0] + batch * flags.strides[1]] != 0;
  }
  // Our own tensors are contiguous.
  __device__ long long at(int t) const { return (t * columns + batch) * units + unit; }
  __device__ float load(const float* own, int t) const {
    return t >= 0 && t < time ? own[at(t)] : 0.f;
  }
};

struct ForwardArguments {
  Sizes sizes;
  View z, i, f, z_weights, i_weights, f_weights;
  Flags is_first;
  View initial;
  float *y, *final, *saved_z, *saved_i, *saved_f, *before;
};

struct ForwardRow {
  float z, i, f;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(WARP, 1)
    elementwise_lstm_forward(const __grid_constant__ ForwardArguments a) {
  const Unit own(a.sizes);
  if (!own.is_there()) return;
  const float w_z = own.load(a.z_weights), w_i = own.load(a.i_weights);
  const float w_f = own.load(a.f_weights);
  float cell = own.load(a.initial);
  auto load = [&](int t) {
    return ForwardRow{own.load(a.z, t), own.load(a.i, t), own.load(a.f, t),
                      own.is_first(a.is_first, t)};
  };
  ForwardRow next = load(0);
  for (int t = 0; t < own.time; ++t) {
    const ForwardRow row = next;
    next = load(t + 1);
    if (row.is_first) cell = 0.f;
    const float z = fast_tanh(row.z + w_z * cell);
    const float i = fast_sigmoid(row.i + w_i * cell), f = fast_sigmoid(row.f + w_f * cell);
    const long long at = own.at(t);
    if (a.before) {
      a.saved_z[at] = z;
      a.saved_i[at] = i;
      a.saved_f[at] = f;
      a.before[at] = cell;
    }
    cell = f * cell + i * z;
    a.y[at] = cell;
  }
  a.final[own.at(0)] = cell;
}

struct BackwardArguments {
  Sizes sizes;
  View z, i, f, z_weights, i_weights, f_weights;
  Flags is_first;
  View initial, grad_y, grad_final;
  float *saved_z, *saved_i, *saved_f, *before;
  float *grad_z, *grad_i, *grad_f, *grad_z_weights, *grad_i_weights, *grad_f_weights;
  float* grad_initial;
};

struct BackwardRow {
  float z, i, f, before, grad_y;
  bool is_first;
};

extern "C" __global__ void __launch_bounds__(WARP, 1)
    elementwise_lstm_backward(const __grid_constant__ BackwardArguments a) {
  const Unit own(a.sizes);
  if (!own.is_there()) return;
  const float w_z = own.load(a.z_weights), w_i = own.load(a.i_weights);
  const float w_f = own.load(a.f_weights);
  float dw_z = 0.f, dw_i = 0.f, dw_f = 0.f, dc = own.load(a.grad_final);
  auto load = [&](int t) {
    return BackwardRow{own.load(a.saved_z, t), own.load(a.saved_i, t), own.load(a.saved_f, t),
                       own.load(a.before, t),  own.load(a.grad_y, t),  own.is_first(a.is_first, t)};
  };
  BackwardRow next = load(own.time - 1);
  for (int t = own.time - 1; t >= 0; --t) {
    const BackwardRow row = next;
    next = load(t - 1);
    dc += row.grad_y;
    const float dz = dc * row.i * (1.f - row.z * row.z);
    const float di = dc * row.z * row.i * (1.f - row.i);
    const float df = dc * row.before * row.f * (1.f - row.f);
    const long long at = own.at(t);
    a.grad_z[at] = dz;
    a.grad_i[at] = di;
    a.grad_f[at] = df;
    dw_z += dz * row.before;
    dw_i += di * row.before;
    dw_f += df * row.before;
    dc = row.is_first ? 0.f : dc * row.f + w_z * dz + w_i * di + w_f * df;
  }
  const long long at = own.at(0);
  a.grad_z_weights[at] = dw_z;
  a.grad_i_weights[at] = dw_i;
  a.grad_f_weights[at] = dw_f;
  a.grad_initial[at] = dc;
}
