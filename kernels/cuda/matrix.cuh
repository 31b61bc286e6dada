// Moves a D x D matrix between memory and the registers of a block's lanes.
//
// Lane i holds either *column* i of W [keys, values] (entries W[j][i], what W^T q needs) or *row* i
// (entries W[i][j], what W g needs); `position` says which j. Entries beyond the true sizes are zero.
#pragma once
#include "warp.cuh"

// An entry of a state [B, H, rows, columns]; weights [H, rows, columns] have a zero batch stride.
__device__ inline float matrix_entry(const View& view, const Place& at, int row,
                                     int column) {
  return view.data[at.batch * view.strides[0] + at.head * view.strides[1] +
                   row * view.strides[2] + column * view.strides[3]];
}

// Matrices are loaded through shared memory. Neighbouring lanes then read neighbouring numbers,
// by row and by column, and few addresses are live at a time (otherwise registers would spill).
// Rows are padded to avoid bank conflicts when lanes read their rows four numbers at a time.
constexpr int TILE = D > WARP ? 16 : D;  // rows staged together
constexpr int PADDED_ROW = D + 4;
constexpr int STAGE = TILE * PADDED_ROW;  // floats

// Stages rows first .. first + TILE - 1 of a matrix. Each part of a lane fetches its own rows.
__device__ inline void stage_rows(float* stage, int first, const View& view, const Place& at,
                                  int rows, int columns) {
  const float* matrix = view.data + at.batch * view.strides[0] + at.head * view.strides[1] +
                        at.lane * view.strides[3];
#pragma unroll 4
  for (int n = 0; n < TILE / PARTS; ++n) {
    const int row = position(n);
    const bool inside = first + row < rows && at.lane < columns;
    const float entry = inside ? matrix[(first + row) * view.strides[2]] : 0.f;
    if (at.lane < D) stage[row * PADDED_ROW + at.lane] = entry;
  }
  sync();
}

// entries += a matrix's column; zero in lanes beyond the last column, because a warp has more lanes
// than a small matrix has columns.
__device__ inline void add_column(float (&entries)[ENTRIES], const View& view, const Place& at,
                                  int rows, int columns, float* stage) {
#pragma unroll
  for (int first = 0; first < D; first += TILE) {
    stage_rows(stage, first, view, at, rows, columns);
#pragma unroll
    for (int n = 0; n < TILE / PARTS; ++n) {
      const float entry = stage[position(n) * PADDED_ROW + at.lane % D];
      entries[first / PARTS + n] += at.lane < D ? entry : 0.f;
    }
  }  // a thread reads only its own writes: no barrier needed
}

template <int N>
__device__ inline void add_row(float (&entries)[N], const View& view, const Place& at, int rows,
                               int columns, float* stage) {
  for (int first = 0; first < D; first += TILE) {
    stage_rows(stage, first, view, at, rows, columns);
    const float* row = stage + at.lane % TILE * PADDED_ROW;
    const bool mine = at.lane / TILE * TILE == first;
#pragma unroll
    for (int n = 0; n < N; n += 4) {
      const float4 x = four(row, n);
      entries[n] += mine ? x.x : 0.f;
      entries[n + 1] += mine ? x.y : 0.f;
      entries[n + 2] += mine ? x.z : 0.f;
      entries[n + 3] += mine ? x.w : 0.f;
    }
    sync();
  }
}

__device__ inline void load_column(float (&entries)[ENTRIES], const View& view, const Place& at,
                                   int rows, int columns, float* stage) {
  clear(entries);
  add_column(entries, view, at, rows, columns, stage);
}

template <int N>
__device__ inline void load_row(float (&entries)[N], const View& view, const Place& at, int rows,
                                int columns, float* stage) {
  clear(entries);
  add_row(entries, view, at, rows, columns, stage);
}

// This lane's entry of a vector state [B, H, entries].
__device__ inline float load_vector(const View& view, const Place& at, int entries) {
  return at.lane < entries ? matrix_entry(view, at, at.lane, 0) : 0.f;
}

// Calls `write(j, entries W[j][lane])` for this thread's entries of a column. For stores, too, few
// addresses are live at a time.
template <class Write>
__device__ inline void each_entry(const float (&entries)[ENTRIES], const Place& at, float* stage,
                                  Write write) {
  if (at.lane >= D) return;
#pragma unroll
  for (int first = 0; first < D; first += TILE) {
#pragma unroll
    for (int n = 0; n < TILE / PARTS; ++n)
      stage[position(n) * PADDED_ROW + at.lane] = entries[first / PARTS + n];
#pragma unroll 4
    for (int n = 0; n < TILE / PARTS; ++n)
      write(first + position(n), stage[position(n) * PADDED_ROW + at.lane]);
  }
}

// Stores to our own contiguous [B, H, rows, columns]; neighbouring lanes write neighbours.
__device__ inline void store_column(float* own, const float (&entries)[ENTRIES], const Place& at,
                                    int rows, int columns, float* stage) {
  float* column = own + static_cast<long long>(at.block) * rows * columns + at.lane;
  each_entry(entries, at, stage, [&](int row, float entry) {
    if (row < rows && at.lane < columns) column[row * columns] = entry;
  });
}

__device__ inline void store_vector(float* own, float value, const Place& at, int entries) {
  if (at.lane < entries) own[static_cast<long long>(at.block) * entries + at.lane] = value;
}
