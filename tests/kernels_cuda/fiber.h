// Runs a CUDA kernel's own source on the CPU: one fiber for each thread of a block, blocks in turn.
//
// A fiber runs until it meets a barrier; then another one does, in an order that changes with the
// seed. So a number that a lane reads from shared memory before its writer's barrier is wrong in
// some order. Shared memory is NaN when a block starts. Lanes that wait at different barriers, or
// at one that others have passed by, are an error. Not modelled: a shuffle here is also a barrier
// for memory, real warps are wider than one instruction, and nothing checks a device's limits.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
#define SHARED_FLOATS(name, count)            \
  alignas(16) static float name[count];       \
  static long name##_block = -1;              \
  if (name##_block != fiber::blocks_started) { \
    name##_block = fiber::blocks_started;     \
    std::fill_n(name, count, std::numeric_limits<float>::quiet_NaN()); \
  }
#define __syncwarp() fiber::wait(fiber::WARP_BARRIER, __FILE__, __LINE__)
#define __syncthreads() fiber::wait(fiber::BLOCK_BARRIER, __FILE__, __LINE__)
#define __barrier_sync_count(id, count) fiber::wait_for_group(count, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, x, offset) \
  fiber::exchange(x, __FILE__, __LINE__)[(fiber::current % 32) ^ (offset)]
#define __ballot_sync(mask, x) fiber::ballot(x, __FILE__, __LINE__)
#define __ffs(x) __builtin_ffs(x)
#define __expf(x) std::exp(x)
#define __fdividef(x, y) ((x) / (y))
#define __uint_as_float(bits) fiber::same_bits<float>(bits)
#define __float_as_uint(x) fiber::same_bits<unsigned>(x)

inline float atomicAdd(float* sum, float x) {  // fibers take turns
  const float before = *sum;
  *sum += x;
  return before;
}

struct alignas(16) float4 {
  float x, y, z, w;
};
struct Index {
  int x;
};
static Index threadIdx, blockIdx, gridDim;

namespace fiber {

template <class To, class From>
To same_bits(From from) {
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

enum Status { READY, WARP_BARRIER, GROUP_BARRIER, BLOCK_BARRIER, DONE };
constexpr int STACK = 1 << 17, MOST_THREADS = 1024, WARP_LANES = 32;

struct Fiber {
  ucontext_t beginning;  // where it starts; then `_setjmp`, which unlike swapcontext asks no kernel
  jmp_buf place;
  bool started;
  std::vector<char> stack;
  Status status;
  const char* file;
  int line, exchanges;
};

static std::vector<Fiber> fibers(MOST_THREADS);
static jmp_buf scheduler;
static float exchanged[2][MOST_THREADS];
static void (*start)();
static int current;
static long blocks_started;
static int group_lanes = WARP_LANES;  // neighbouring threads that share a named barrier

inline void leave(Fiber& self) {
  if (_setjmp(self.place) == 0) _longjmp(scheduler, 1);
}

inline void resume(Fiber& fiber) {
  if (_setjmp(scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.beginning);
}

inline void wait(Status barrier, const char* file, int line) {
  Fiber& self = fibers[current];
  self.status = barrier;
  self.file = file;
  self.line = line;
  leave(self);
}

inline void wait_for_group(int lanes, const char* file, int line) {
  group_lanes = lanes;
  wait(GROUP_BARRIER, file, line);
}

// Publishes a lane's number to its warp. Two sets: a lane may be one exchange ahead of another.
inline const float* exchange(float x, const char* file, int line) {
  float* all = exchanged[fibers[current].exchanges++ % 2];
  all[current] = x;
  wait(WARP_BARRIER, file, line);
  return all + current / WARP_LANES * WARP_LANES;
}

inline unsigned ballot(bool x, const char* file, int line) {
  const float* all = exchange(x, file, line);
  unsigned bits = 0;
  for (int lane = 0; lane < WARP_LANES; ++lane) bits |= (all[lane] != 0.f ? 1u : 0u) << lane;
  return bits;
}

inline void body() {
  start();
  fibers[current].status = DONE;
  leave(fibers[current]);
}

inline void prepare(Fiber& fiber) {
  fiber.status = READY;
  fiber.exchanges = 0;
  fiber.started = false;
  fiber.stack.resize(STACK);
  getcontext(&fiber.beginning);
  fiber.beginning.uc_stack.ss_sp = fiber.stack.data();
  fiber.beginning.uc_stack.ss_size = fiber.stack.size();
  fiber.beginning.uc_link = nullptr;
  makecontext(&fiber.beginning, body, 0);
}

// Lets threads first..last go on if all of them wait at the same `barrier`.
inline bool release(int first, int last, Status barrier) {
  for (int i = first; i < last; ++i) {
    const Fiber& fiber = fibers[i];
    if (fiber.status != barrier || fiber.file != fibers[first].file ||
        fiber.line != fibers[first].line)
      return false;
  }
  for (int i = first; i < last; ++i) fibers[i].status = READY;
  return true;
}

enum Order { ASCENDING, DESCENDING };  // any other number seeds a shuffle

// False where lanes can never meet again.
inline bool run_block(int threads, int order, std::mt19937& random) {
  std::vector<int> lanes(threads);
  std::iota(lanes.begin(), lanes.end(), 0);
  if (order == DESCENDING) std::reverse(lanes.begin(), lanes.end());
  for (int i = 0; i < threads; ++i) prepare(fibers[i]);
  ++blocks_started;
  for (int done = 0; done < threads;) {
    if (order > DESCENDING) std::shuffle(lanes.begin(), lanes.end(), random);
    for (int lane : lanes) {
      if (fibers[lane].status != READY) continue;
      current = threadIdx.x = lane;
      resume(fibers[lane]);
      done += fibers[lane].status == DONE;
    }
    bool released = release(0, threads, BLOCK_BARRIER);
    for (int warp = 0; warp < threads; warp += WARP_LANES)
      released |= release(warp, warp + WARP_LANES, WARP_BARRIER);
    for (int group = 0; group + group_lanes <= threads; group += group_lanes)
      released |= release(group, group + group_lanes, GROUP_BARRIER);
    if (!released && done < threads) return false;
  }
  return true;
}

// 0: done. 1: lanes waited for each other for ever. 2: the argument struct has another size.
template <class Arguments>
int launch(void (*kernel)(Arguments), const void* words, size_t bytes, int blocks, int threads,
           int order) {
  if (bytes != sizeof(Arguments)) return 2;
  static const Arguments* arguments;
  static void (*run)(Arguments);
  arguments = static_cast<const Arguments*>(words);
  run = kernel;
  start = [] { run(*arguments); };
  std::mt19937 random(order);
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    if (!run_block(threads, order, random)) return 1;
  return 0;
}

}  // namespace fiber
