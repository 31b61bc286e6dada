// Moving a D x D matrix between memory and the registers of a block's lanes.
//
// Lane i holds either *column* i of W [keys, values] (entries W[j][i], what W^T q needs) or *row* i
// (entries W[i][j], what W g needs). Entries beyond the true sizes are zero.
#pragma once
#include "warp.cuh"

// A state [B, H, rows, columns]; weights [H, rows, columns] have a batch stride of zero.
__device__ inline float matrix_entry(const View& view, const Place& at, int row,
                                     int column) {
  return view.data[at.batch * view.strides[0] + at.head * view.strides[1] +
                   row * view.strides[2] + column * view.strides[3]];
}

// Matrices pass through shared memory on their way in: neighbouring lanes then read neighbouring
// numbers, by row as well as by column, and few addresses are alive at a time (a spill otherwise).
// A row is padded so that lanes that read their rows four numbers at a time share no banks.
constexpr int PADDED_ROW = D + 4;
constexpr int STAGE = D * PADDED_ROW;

__device__ inline void stage_matrix(float* stage, const View& view, const Place& at, int rows,
                                    int columns) {
  const float* from = view.data + at.batch * view.strides[0] + at.head * view.strides[1] +
                      at.lane * view.strides[3];
#pragma unroll 4
  for (int j = 0; j < D; ++j) {
    const float entry = j < rows && at.lane < columns ? *from : 0.f;
    if (at.lane < D) stage[j * PADDED_ROW + at.lane] = entry;
    from += view.strides[2];
  }
  sync();
}

__device__ inline void take_row(float (&entries)[D], const float* stage, const Place& at) {
  const bool beyond = at.lane >= D;  // a warp has more lanes than a small matrix has rows
#pragma unroll
  for (int j = 0; j < D; j += 4) {
    const float4 x = *reinterpret_cast<const float4*>(stage + (at.lane % D) * PADDED_ROW + j);
    entries[j] = beyond ? 0.f : x.x;
    entries[j + 1] = beyond ? 0.f : x.y;
    entries[j + 2] = beyond ? 0.f : x.z;
    entries[j + 3] = beyond ? 0.f : x.w;
  }
}

__device__ inline void take_column(float (&entries)[D], const float* stage, const Place& at) {
  const bool beyond = at.lane >= D;
#pragma unroll
  for (int j = 0; j < D; ++j) entries[j] = beyond ? 0.f : stage[j * PADDED_ROW + at.lane % D];
}

__device__ inline void load_column(float (&entries)[D], const View& view, const Place& at,
                                   int rows, int columns, float* stage) {
  stage_matrix(stage, view, at, rows, columns);
  take_column(entries, stage, at);  // its own writes: no barrier before the next use
}

__device__ inline void load_row(float (&entries)[D], const View& view, const Place& at, int rows,
                                int columns, float* stage) {
  stage_matrix(stage, view, at, rows, columns);
  take_row(entries, stage, at);
  sync();
}

// A vector state [B, H, entries].
__device__ inline float load_vector(const View& view, const Place& at, int entries) {
  return at.lane < entries ? matrix_entry(view, at, at.lane, 0) : 0.f;
}

// Into our own contiguous [B, H, rows, columns]: neighbouring lanes write neighbouring numbers.
__device__ inline void store_column(float* own, const float (&entries)[D], const Place& at,
                                    int rows, int columns) {
  const long long start = static_cast<long long>(at.block) * rows * columns + at.lane;
#pragma unroll
  for (int j = 0; j < D; ++j)
    if (j < rows && at.lane < columns) own[start + j * columns] = entries[j];
}

__device__ inline void store_vector(float* own, float value, const Place& at, int entries) {
  if (at.lane < entries) own[static_cast<long long>(at.block) * entries + at.lane] = value;
}
