// Runs the source of a CUDA kernel on the CPU: block after block, with a fiber for each thread.
//
// A fiber runs until it reaches a barrier; then another fiber runs, in an order that depends on the
// seed. A warp runs ahead of the others to the next barrier that it shares with them, and so does a
// group. A value is therefore wrong in some order if a lane reads it from shared memory before its
// writer's barrier, or writes it before its reader's. Shared memory is NaN when a block starts.
// Lanes that wait at different barriers, or at a barrier that others have passed, are an error.
// Differences from a GPU: a shuffle is also a memory barrier, the lanes of a warp do not run in
// step, and no limits of a device are checked.
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
#define rsqrtf(x) (1.f / std::sqrt(x))
#define __fdividef(x, y) ((x) / (y))
#define __uint_as_float(bits) fiber::same_bits<float>(bits)
#define __float_as_uint(x) fiber::same_bits<unsigned>(x)

inline float atomicAdd(float* sum, float x) {  // only one fiber runs at a time
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
  ucontext_t beginning;  // for the start only; later `_setjmp`, which makes no system call
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

// Publishes a lane's value to its warp. There are two sets, as a lane may be one exchange ahead.
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

// Lets threads first..last continue if all of them wait at the same `barrier`.
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

enum Order { ASCENDING, DESCENDING };  // any other number is the seed of a shuffle

// A block's threads, warps and groups, each in an order that changes from pass to pass.
class Scheduler {
 public:
  Scheduler(int threads, int order, std::mt19937& random)
      : threads(threads), order(order), random(random) {}

  // False if lanes can never reach a common barrier.
  bool run() {
    for (int i = 0; i < threads; ++i) prepare(fibers[i]);
    ++blocks_started;
    while (done < threads) {
      moved = false;
      do {
        const int lanes = group_lanes;
        for (int group : in_turn(threads / lanes)) run_group(group * lanes, lanes);
      } while (release(0, threads, BLOCK_BARRIER));
      if (!moved) return false;
    }
    return true;
  }

 private:
  // Runs ahead of the other groups, to the block's next barrier.
  void run_group(int first, int lanes) {
    do {
      for (int warp : in_turn(lanes / WARP_LANES)) run_warp(first + warp * WARP_LANES);
      // The group's first barrier tells the size of a group.
    } while (lanes == group_lanes && let_go(first, lanes, GROUP_BARRIER) && !rests());
  }

  // Runs ahead of the other warps, to their next barrier.
  void run_warp(int first) {
    do {
      for (int lane : in_turn(WARP_LANES)) {
        Fiber& fiber = fibers[first + lane];
        if (fiber.status != READY) continue;
        current = threadIdx.x = first + lane;
        resume(fiber);
        moved = true;
        done += fiber.status == DONE;
      }
    } while (let_go(first, WARP_LANES, WARP_BARRIER) && !rests());
  }

  bool let_go(int first, int lanes, Status barrier) {
    const bool released = release(first, first + lanes, barrier);
    moved |= released;
    return released;
  }

  // With a random order, others catch up now and then.
  bool rests() { return order > DESCENDING && random() % 8 == 0; }

  std::vector<int> in_turn(int count) {
    std::vector<int> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (order == DESCENDING) std::reverse(numbers.begin(), numbers.end());
    if (order > DESCENDING) std::shuffle(numbers.begin(), numbers.end(), random);
    return numbers;
  }

  const int threads, order;
  std::mt19937& random;
  int done = 0;
  bool moved = false;
};

// 0: done. 1: lanes waited for each other forever. 2: the argument struct has another size.
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
    if (!Scheduler(threads, order, random).run()) return 1;
  return 0;
}

}  // namespace fiber
