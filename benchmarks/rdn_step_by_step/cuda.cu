// A baseline for benchmarks: the recurrent delta rule (RDN) as the published kernels compute it.
// Each entry of the D x D matrix has a thread, sums are atomic additions in shared memory, the
// backward rewinds the matrix in place, and each step is a launch. The equations are those of
// kernels/recurrent_delta_rule, with softmax, head sizes up to 32, and keys as long as values.
//
// Sizes::option is the step t. Buffers shared by all launches: weights [B, H, N, N] (W_t) and
// output [B, H, N] (y_t); in the backward also gradient (of W) and carried (of y_{t-1}).
#include "warp.cuh"

constexpr int THREADS = D * D;

// All [T, B, H, ...]; before is W_{t-1} if row t reset it. All are null without a backward.
struct Saved {
  float *query, *key, *error, *strength, *hidden, *before;
};

struct ForwardArguments {
  Sizes sizes;
  View q, k, v, beta, query_weights, key_weights, value_weights, strength_weights;
  Flags is_first;
  float *weights, *output, *y;
  Saved saved;
};

// Entry (row, column) of a matrix, or a number outside of it.
struct Entry {
  int row, column, size, step, block, blocks, batch, head;

  __device__ explicit Entry(const Sizes& sizes)
      : row(threadIdx.x / D), column(threadIdx.x % D), size(static_cast<int>(sizes.keys)),
        step(static_cast<int>(sizes.option)), block(blockIdx.x), blocks(gridDim.x),
        batch(block / static_cast<int>(sizes.heads)), head(block % static_cast<int>(sizes.heads)) {}

  __device__ bool inside() const { return row < size && column < size; }
  __device__ bool leads() const { return row == 0 && column < size; }  // one thread a column
  __device__ float input(const View& view) const {
    return view.data[step * view.strides[0] + batch * view.strides[1] + head * view.strides[2] +
                     column * view.strides[3]];
  }
  __device__ float weight(const View& view) const {  // [H, N, N]; the batch's stride is 0
    return view.data[head * view.strides[1] + row * view.strides[2] + column * view.strides[3]];
  }
  __device__ float weight_of_column(const View& view) const {  // [H, N]
    return view.data[head * view.strides[1] + column * view.strides[2]];
  }
  __device__ bool is_first(const Flags& flags) const {
    return flags.data[step * flags.strides[0] + batch * flags.strides[1]] != 0;
  }
  __device__ long long matrix() const {
    return (static_cast<long long>(block) * size + row) * size + column;
  }
  __device__ long long vector() const { return static_cast<long long>(block) * size + column; }
  __device__ long long at_step(long long numbers, long long position) const {
    return static_cast<long long>(step) * blocks * numbers + position;
  }
};

// exp(x) / sum exp(x) over the columns, in place; `total` is zero before.
__device__ inline void softmax_in_place(float* x, float* total, const Entry& at) {
  float largest = LOWEST;
  for (int n = 0; n < at.size; ++n) largest = fmaxf(largest, x[n]);
  __syncthreads();
  if (at.leads()) {
    x[at.column] = __expf(x[at.column] - largest);
    atomicAdd(total, x[at.column]);
  }
  __syncthreads();
  if (at.leads()) x[at.column] /= *total;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    rdn_step_by_step_forward(const __grid_constant__ ForwardArguments a) {
  SHARED_FLOATS(shared, 6 * D + 4);
  float *h = shared, *q = h + D, *k = q + D, *v = k + D, *old = v + D, *y = old + D;
  float *strength = y + D, *query_total = strength + 1, *key_total = query_total + 1;
  const Entry at(a.sizes);
  const bool first = at.is_first(a.is_first);
  float weight = at.inside() ? a.weights[at.matrix()] : 0.f;
  if (first) {
    if (at.inside() && a.saved.before)
      a.saved.before[at.at_step(at.size * at.size, at.matrix())] = weight;
    weight = 0.f;
  }
  if (at.leads()) {
    h[at.column] = first ? 0.f : fast_tanh(a.output[at.vector()]);
    q[at.column] = at.input(a.q);
    k[at.column] = at.input(a.k);
    v[at.column] = at.input(a.v);
    old[at.column] = y[at.column] = 0.f;
  }
  if (threadIdx.x == 0) {
    *strength = at.input(a.beta);
    *query_total = *key_total = 0.f;
  }
  __syncthreads();
  if (at.inside()) {
    atomicAdd(q + at.column, h[at.row] * at.weight(a.query_weights));
    atomicAdd(k + at.column, h[at.row] * at.weight(a.key_weights));
    atomicAdd(v + at.column, h[at.row] * at.weight(a.value_weights));
  }
  if (at.leads()) atomicAdd(strength, h[at.column] * at.weight_of_column(a.strength_weights));
  __syncthreads();
  softmax_in_place(q, query_total, at);
  softmax_in_place(k, key_total, at);
  __syncthreads();
  const float beta = fast_sigmoid(*strength);
  if (at.inside()) atomicAdd(old + at.column, weight * k[at.row]);
  __syncthreads();
  if (at.inside()) {
    weight += k[at.row] * beta * (v[at.column] - old[at.column]);
    atomicAdd(y + at.column, weight * q[at.row]);
    a.weights[at.matrix()] = weight;
  }
  __syncthreads();
  if (!at.leads()) return;
  const long long position = at.at_step(at.size, at.vector());
  a.y[position] = a.output[at.vector()] = y[at.column];
  if (!a.saved.query) return;
  a.saved.query[position] = q[at.column];
  a.saved.key[position] = k[at.column];
  a.saved.error[position] = v[at.column] - old[at.column];
  a.saved.hidden[position] = h[at.column];
  if (at.column == 0) a.saved.strength[at.at_step(1, at.block)] = beta;
}

struct BackwardArguments {
  Sizes sizes;
  View query_weights, key_weights, value_weights, strength_weights;
  Flags is_first;
  View grad_y;
  float *weights, *gradient, *carried;
  Saved saved;
  float *grad_q, *grad_k, *grad_v, *grad_beta;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    rdn_step_by_step_backward(const __grid_constant__ BackwardArguments a) {
  SHARED_FLOATS(shared, 9 * D + 4);
  float *q = shared, *k = q + D, *u = k + D, *g = u + D, *dq = g + D, *dk = dq + D, *du = dk + D;
  float *dv = du + D, *dh = dv + D, *grad_beta = dh + D, *query_sum = grad_beta + 1;
  float* key_sum = query_sum + 1;
  const Entry at(a.sizes);
  const bool first = at.is_first(a.is_first);
  const long long position = at.at_step(at.size, at.vector());
  const float beta = a.saved.strength[at.at_step(1, at.block)];
  float weight = at.inside() ? a.weights[at.matrix()] : 0.f;
  float gradient = at.inside() ? a.gradient[at.matrix()] : 0.f;
  float error = 0.f;
  if (at.leads()) {
    error = a.saved.error[position];
    q[at.column] = a.saved.query[position];
    k[at.column] = a.saved.key[position];
    u[at.column] = beta * error;
    g[at.column] = at.input(a.grad_y) + a.carried[at.vector()];
    dq[at.column] = dk[at.column] = du[at.column] = dh[at.column] = 0.f;
  }
  if (threadIdx.x == 0) *grad_beta = *query_sum = *key_sum = 0.f;
  __syncthreads();
  if (at.inside()) {
    gradient += q[at.row] * g[at.column];
    atomicAdd(dq + at.row, weight * g[at.column]);
    atomicAdd(du + at.column, gradient * k[at.row]);
    atomicAdd(dk + at.row, gradient * u[at.column]);
    weight -= k[at.row] * u[at.column];
  }
  __syncthreads();
  if (at.leads()) {
    dv[at.column] = beta * du[at.column];
    atomicAdd(grad_beta, du[at.column] * error * beta * (1.f - beta));
  }
  __syncthreads();
  if (at.inside()) {
    atomicAdd(dk + at.row, -weight * dv[at.column]);
    gradient -= k[at.row] * dv[at.column];
  }
  __syncthreads();
  if (at.leads()) {
    atomicAdd(query_sum, q[at.column] * dq[at.column]);
    atomicAdd(key_sum, k[at.column] * dk[at.column]);
  }
  __syncthreads();
  if (at.leads()) {
    a.grad_q[position] = dq[at.column] = q[at.column] * (dq[at.column] - *query_sum);
    a.grad_k[position] = dk[at.column] = k[at.column] * (dk[at.column] - *key_sum);
    a.grad_v[position] = dv[at.column];
    if (at.column == 0) a.grad_beta[at.at_step(1, at.block)] = *grad_beta;
  }
  __syncthreads();
  if (at.inside())
    atomicAdd(dh + at.row, at.weight(a.query_weights) * dq[at.column] +
                               at.weight(a.key_weights) * dk[at.column] +
                               at.weight(a.value_weights) * dv[at.column]);
  __syncthreads();
  if (at.leads()) {
    const float h = a.saved.hidden[position];
    const float whole = dh[at.column] + at.weight_of_column(a.strength_weights) * *grad_beta;
    a.carried[at.vector()] = first ? 0.f : whole * (1.f - h * h);
  }
  if (!at.inside()) return;
  a.weights[at.matrix()] =
      first ? a.saved.before[at.at_step(at.size * at.size, at.matrix())] : weight;
  a.gradient[at.matrix()] = first ? 0.f : gradient;
}
