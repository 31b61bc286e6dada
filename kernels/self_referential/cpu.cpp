// The self-referential matrix on CPUs. Its columns form four blocks: y, q, k and the strengths.
#include "call.h"
#include "feature_maps.h"
#include "matrix.h"
#include "outer_sum.h"
#include "replay.h"

using namespace fastweights;
using R = Row<T, P>;
using Four = Row<T, 4>;
constexpr int kBlocks = 3;  // y, q, k; the fourth block has type Four
enum Block { kY = 0, kQuery = 1, kKey = 2 };

struct SrwmSizes {
  int64_t time, batch, heads, head, threads;

  explicit SrwmSizes(Call& call)
      : time(call.integer()), batch(call.integer()), heads(call.integer()), head(call.integer()),
        threads(call.integer()) {}

  int64_t columns() const { return kBlocks * head + 4; }
};

// W [D, 3D + 4] with lanes along its columns, read with vectors of size D.
struct Upright {
  Row<T, P> block[kBlocks][P];
  Row<T, 4> strengths[P];

  FW_APART void load(const T* from, int64_t stride, int64_t D) {
    for (int64_t j = 0; j < D; j++, from += stride) {
      for (int c = 0; c < kBlocks; c++) block[c][j] = R::load(from + c * D, D);
      strengths[j] = Four::load(from + kBlocks * D, 4);
    }
  }

  FW_APART void clear(int64_t D) {
    for (int64_t j = 0; j < D; j++) {
      for (auto& lanes : block) lanes[j] = R::fill(T(0));
      strengths[j] = Four::fill(T(0));
    }
  }

  FW_APART void add(const T* from, int64_t stride, int64_t D, T sign) {
    for (int64_t j = 0; j < D; j++, from += stride) {
      for (int c = 0; c < kBlocks; c++)
        block[c][j] = block[c][j] + sign * R::load(from + c * D, D);
      strengths[j] = strengths[j] + sign * Four::load(from + kBlocks * D, 4);
    }
  }

  FW_APART void add_to(T* to, int64_t stride, int64_t D) const {
    for (int64_t j = 0; j < D; j++, to += stride) {
      for (int c = 0; c < kBlocks; c++)
        (R::load(to + c * D, D) + block[c][j]).store(to + c * D, D);
      (Four::load(to + kBlocks * D, 4) + strengths[j]).store(to + kBlocks * D, 4);
    }
  }

  FW_APART void store(T* to, int64_t stride, int64_t D) const {
    for (int64_t j = 0; j < D; j++, to += stride) {
      for (int c = 0; c < kBlocks; c++) block[c][j].store(to + c * D, D);
      strengths[j].store(to + kBlocks * D, 4);
    }
  }
};

// A row of 3D + 4 numbers: one for each column of W.
struct Wide {
  R block[kBlocks];
  Four strengths;

  static Wide zero() {
    return {{R::fill(T(0)), R::fill(T(0)), R::fill(T(0))}, Four::fill(T(0))};
  }

  static FW_APART Wide load(const T* from, int64_t D) {
    return {{R::load(from, D), R::load(from + D, D), R::load(from + 2 * D, D)},
            Four::load(from + 3 * D, 4)};
  }

  FW_APART void store(T* to, int64_t D) const {
    for (int c = 0; c < kBlocks; c++) block[c].store(to + c * D, D);
    strengths.store(to + kBlocks * D, 4);
  }

  // Multiplies each block by its own strength.
  FW_APART Wide scaled(const Four& by) const {
    Wide result;
    for (int c = 0; c < kBlocks; c++) result.block[c] = by[c] * block[c];
    result.strengths = by[3] * strengths;
    return result;
  }
};

// M += sum of along row^T over the writes, then reads M^T, for the whole width.
template <size_t W>
FW_INLINE Wide sweep_wide(Upright& m, int64_t D, const R* const (&along)[W],
                          const Wide* const (&row)[W], const R* asked) {
  Wide answer;
  auto one_block = [&](auto* rows, auto pick) __attribute__((always_inline)) {
    using Lanes = std::remove_reference_t<decltype(*rows)>;
    Lanes result;
    std::array<Write<T, sizeof(Lanes) / sizeof(T)>, W> writes;
    for (size_t w = 0; w < W; w++) writes[w] = {along[w]->data(), pick(*row[w])};
    sweep<T, sizeof(Lanes) / sizeof(T), W, 1>(rows, D, writes, {{{asked->data(), &result}}});
    return result;
  };
  for (int c = 0; c < kBlocks; c++)
    answer.block[c] = one_block(m.block[c], [c](const Wide& wide) { return wide.block[c]; });
  answer.strengths = one_block(m.strengths, [](const Wide& wide) { return wide.strengths; });
  return answer;
}

FW_INLINE Wide ask(Upright& m, int64_t D, const R& x) {
  Wide answer;
  for (int c = 0; c < kBlocks; c++)
    sweep<T, P, 0, 1>(m.block[c], D, {}, {{{x.data(), &answer.block[c]}}});
  sweep<T, 4, 0, 1>(m.strengths, D, {}, {{{x.data(), &answer.strengths}}});
  return answer;
}

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  SrwmSizes size(call);
  auto map = FeatureMap(call.integer());
  const T largest = T(largest_strength(call.integer()));
  auto xs = call.tensor<const T>(), base = call.tensor<const T>();
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto ys = call.tensor<T>(), final = call.tensor<T>();
  auto queries = call.tensor<T>(), keys = call.tensor<T>();
  auto all_strengths = call.tensor<T>(), differences = call.tensor<T>();
  auto saved_final = call.tensor<T>();

  parallel_for(size.batch * size.heads, size.threads, [&](int64_t n) {
    int64_t b = n / size.heads, h = n % size.heads;
    const int64_t D = size.head;
    const R mask = live_lanes<T, P>(D);
    const auto x = xs.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto y = ys.steps(b, h), saved_query = queries.steps(b, h), saved_key = keys.steps(b, h);
    const auto saved_strengths = all_strengths.steps(b, h);
    const auto saved_difference = differences.steps(b, h);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(D, t, x, y, saved_query, saved_key);
      prefetch_rows(size.columns(), t, saved_difference);
    };
    prefetch_first(size.time, prefetch);
    Upright& weights = workspace<Upright>();
    weights.load(base.at(h), base.stride[1], D);
    weights.add(initial.at(b, h), initial.stride[2], D, T(1));
    R pending_key = R::fill(T(0));
    Wide pending = Wide::zero();
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) {
        weights.load(base.at(h), base.stride[1], D);
        pending_key = R::fill(T(0));
        pending = Wide::zero();
      }
      R input = R::load(x[t], D);
      Wide answer = sweep_wide<1>(weights, D, {&pending_key}, {&pending}, &input);
      answer.block[kY].store(y[t], D);
      R query = activate(map, answer.block[kQuery], mask);
      R key = activate(map, answer.block[kKey], mask);
      Four strengths = largest * sigmoid(answer.strengths);
      pending_key = normalise(map, key);
      Wide difference = ask(weights, D, normalise(map, query) - pending_key);
      pending = difference.scaled(strengths);
      if (!saved_query) continue;
      query.store(saved_query[t], D);
      key.store(saved_key[t], D);
      strengths.store(saved_strengths[t], 4);
      difference.store(saved_difference[t], D);
    }
    R nothing = R::fill(T(0));
    sweep_wide<1>(weights, D, {&pending_key}, {&pending}, &nothing);
    if (saved_final) weights.store(saved_final.at(b, h), saved_final.stride[2], D);
    weights.add(base.at(h), base.stride[1], D, T(-1));
    if (size.time == 0) weights.load(initial.at(b, h), initial.stride[2], D);  // exact
    weights.store(final.at(b, h), final.stride[2], D);
  });
}

// The transpose [3D + 4, D], with lanes along D.
struct Flipped {
  R row[kBlocks * P + 4];

  FW_APART void clear(int64_t columns) {
    for (int64_t i = 0; i < columns; i++) row[i] = R::fill(T(0));
  }

  // Block by block; number by number, this took as long as two steps.
  FW_APART void add(const T* from, int64_t stride, int64_t D, int64_t columns) {
    for (int64_t first = 0; first < kBlocks * D; first += D) {
      Matrix<T, P> block;
      block.load_transposed(from + first, D, D, stride);
      for (int64_t i = 0; i < D; i++) row[first + i] = row[first + i] + block.row[i];
    }
    for (int64_t j = 0; j < D; j++)
      for (int64_t i = kBlocks * D; i < columns; i++) row[i].data()[j] += from[j * stride + i];
  }
};

struct Adjoint {
  Flipped weights, began, grad_flipped;
  Replay<Flipped> replay;
  Arrivals arrivals;
  Upright grad;
  // Wide rows laid out as in memory, the order in which the flipped matrices number their rows.
  alignas(64) T undo[kBlocks * P + 4], update[kBlocks * P + 4], dchange[kBlocks * P + 4];
  alignas(64) T danswer[kBlocks * P + 4], pending_change[kBlocks * P + 4];
  alignas(64) T pending_answer[kBlocks * P + 4];
  R pending_difference, pending_input;
  Wide pending_dchange, pending_danswer;

  void forget_pending(int64_t columns) {
    pending_difference = pending_input = R::fill(T(0));
    pending_dchange = pending_danswer = Wide::zero();
    for (int64_t i = 0; i < columns; i++) pending_change[i] = pending_answer[i] = T(0);
  }
};

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  SrwmSizes size(call);
  auto map = FeatureMap(call.integer());
  const T largest = T(largest_strength(call.integer()));
  auto xs = call.tensor<const T>(), base = call.tensor<const T>();
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto queries = call.tensor<const T>(), keys = call.tensor<const T>();
  auto all_strengths = call.tensor<const T>(), differences = call.tensor<const T>();
  auto final = call.tensor<const T>();
  auto grad_ys = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_xs = call.tensor<T>(), grad_base = call.tensor<T>(), grad_initial = call.tensor<T>();
  const int64_t D = size.head, columns = size.columns();
  Buffer<T> partial(size.batch * size.heads * D * columns);

  parallel_for(size.batch * size.heads, size.threads, [&](int64_t n) {
    int64_t b = n / size.heads, h = n % size.heads;
    const auto x = xs.steps(b, h), saved_query = queries.steps(b, h), saved_key = keys.steps(b, h);
    const auto saved_strengths = all_strengths.steps(b, h);
    const auto saved_difference = differences.steps(b, h), grad_y = grad_ys.steps(b, h);
    const auto grad_x = grad_xs.steps(b, h);
    const auto is_first = resets.steps(b);
    T* mine = partial.data() + n * D * columns;
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(D, t, x, saved_query, saved_key, grad_y, grad_x);
      prefetch_rows(columns, t, saved_difference);
    };
    Adjoint& a = workspace<Adjoint>();

    auto settle = [&]() FW_APART {
      R nothing = R::fill(T(0));
      sweep_wide<2>(a.grad, D, {&a.pending_difference, &a.pending_input},
                    {&a.pending_dchange, &a.pending_danswer}, &nothing);
      a.grad.add_to(mine, columns, D);
    };
    // A segment's weights start as W_0; in the unroll's first segment, the initial shift is added.
    auto load_beginning = [&](Flipped& to, int64_t begin) FW_APART {
      to.clear(columns);
      to.add(base.at(h), base.stride[1], D, columns);
      if (!*is_first[begin]) to.add(initial.at(b, h), initial.stride[2], D, columns);
    };
    auto write = [&](Flipped& to, int64_t r) FW_APART {
      R written = normalise(map, R::load(saved_key[r], D));
      alignas(64) T update[kBlocks * P + 4];
      Wide::load(saved_difference[r], D)
          .scaled(Four::load(saved_strengths[r], 4))
          .store(update, D);
      sweep<T, P, 1, 0>(to.row, columns, {{{update, written}}}, {});
    };
    // Rebuilds the last weights of the segment before row `end` or, if it is replayed, all of them.
    auto open = [&](int64_t end, bool replays) FW_APART {
      const int64_t begin = segment_start(end, is_first);
      load_beginning(a.weights, begin);
      if (replays) return a.replay.start(a.weights, begin, end, write);
      for (int64_t r = begin; r < end; r++) write(a.weights, r);
    };
    auto arrived = [&](int64_t t) FW_APART {
      load_beginning(a.began, t);
      const Wide error = Wide::load(saved_difference[t], D);
      T size = T(0);
      for (const R& block : error.block) size += dot(block, block);
      return has_arrived<T, P>(a.weights.row, columns, size,
                               [&](int64_t i) { return a.began.row[i]; });
    };
    auto start = [&](bool again) FW_APART {
      a.arrivals.start(size.time, again);
      const bool replays = a.arrivals.replays(size.time, is_first);
      if (replays) {
        open(size.time, replays);
      } else {
        a.weights.clear(columns);
        a.weights.add(final.at(b, h), final.stride[2], D, columns);
      }
      a.grad.clear(D);
      a.grad_flipped.clear(columns);
      a.forget_pending(columns);
      std::memset(mine, 0, D * columns * sizeof(T));
      if (!grad_final) return replays;
      a.grad.load(grad_final.at(b, h), grad_final.stride[2], D);
      a.grad_flipped.add(grad_final.at(b, h), grad_final.stride[2], D, columns);
      // W_0 is read at every step but is not part of the final shift, hence the minus sign.
      for (int64_t j = 0; j < D; j++)
        for (int64_t i = 0; i < columns; i++)
          mine[j * columns + i] = -grad_final.at(b, h)[j * grad_final.stride[2] + i];
      return replays;
    };

    walk_back([&](bool again) __attribute__((always_inline)) {
      bool replays = start(again);
      prefetch_last(size.time, prefetch);
      for (int64_t t = size.time - 1; t >= 0; t--) {
        prefetch(t - kAhead);
        Flipped& weights = replays ? a.replay.before(t, write) : a.weights;
        const T back = replays ? T(0) : T(-1);  // -1 undoes row t's write, if it is there
        R query = R::load(saved_query[t], D), key = R::load(saved_key[t], D);
        R mapped_key = normalise(map, key), difference = normalise(map, query) - mapped_key;
        Four strengths = Four::load(saved_strengths[t], 4);
        // Nothing reads a write that ends a segment, so it has no gradient, not even the NaN of
        // 0 x inf if the write overflowed.
        const bool unread = t + 1 < size.time ? *is_first[t + 1] : !grad_final;
        Wide change = replays && unread ? Wide::zero() : Wide::load(saved_difference[t], D);
        change.scaled(strengths).store(a.update, D);
        for (int64_t i = 0; i < columns; i++) a.undo[i] = back * a.update[i];

        // dW after step t, including the later step's pending write: dW^T k and dW u.
        R dkey;
        Wide dupdate = sweep_wide<2>(a.grad, D, {&a.pending_difference, &a.pending_input},
                                     {&a.pending_dchange, &a.pending_danswer}, &mapped_key);
        sweep<T, P, 2, 1>(a.grad_flipped.row, columns,
                          {{{a.pending_change, a.pending_difference},
                            {a.pending_answer, a.pending_input}}},
                          {{{a.update, &dkey}}});

        Wide dchange = dupdate.scaled(strengths);
        dchange.store(a.dchange, D);
        R ddifference;
        sweep<T, P, 1, 1>(weights.row, columns, {{{a.undo, mapped_key}}},
                          {{{a.dchange, &ddifference}}});

        Wide danswer;
        danswer.block[kY] = R::load(grad_y[t], D);
        danswer.block[kQuery] = feature_adjoint(map, query, ddifference);
        danswer.block[kKey] = feature_adjoint(map, key, dkey - ddifference);
        Four one = Four::fill(T(1)), dstrengths;
        for (int c = 0; c < kBlocks; c++)
          dstrengths.data()[c] = dot(dupdate.block[c], change.block[c]);
        dstrengths.data()[3] = dot(dupdate.strengths, change.strengths);
        danswer.strengths = dstrengths * strengths * (one - (T(1) / largest) * strengths);
        danswer.store(a.danswer, D);
        R dx;
        sweep<T, P, 0, 1>(weights.row, columns, {}, {{{a.danswer, &dx}}});
        dx.store(grad_x[t], D);

        a.pending_difference = difference;
        a.pending_input = R::load(x[t], D);
        a.pending_dchange = dchange;
        a.pending_danswer = danswer;
        std::memcpy(a.pending_change, a.dchange, columns * sizeof(T));
        std::memcpy(a.pending_answer, a.danswer, columns * sizeof(T));
        if (a.arrivals.wanted() && (t == 0 || *is_first[t])) a.arrivals.note(t, arrived(t));
        if (!*is_first[t]) continue;

        settle();
        a.forget_pending(columns);
        a.grad_flipped.clear(columns);
        a.grad.clear(D);
        if (t == 0) break;
        replays = a.arrivals.replays(t, is_first);
        open(t, replays);
      }
      settle();
      return a.arrivals.all();
    });
    a.grad.store(grad_initial.at(b, h), grad_initial.stride[2], D);
  });
  sum_over_batch(size.batch, size.heads * D * columns, size.heads * D * columns, partial.data(),
                 grad_base.data, size.threads);
}
