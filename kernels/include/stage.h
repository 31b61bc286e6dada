// A 3 x 3 convolution followed by max-pooling, with which each stage of the image stem begins. The
// pooling's input stays in the caches.
#pragma once
#include "convolution.h"
#include "pooling.h"

namespace fastweights {

constexpr int C = PK, K = PV;  // channels in and out
constexpr int64_t kAllTaps = kTaps * kTaps * C * K;

struct Stage : Batch {
  using Batch::Batch;

  int64_t inputs() const { return size.pixels() * C; }  // all of these are per picture
  int64_t outputs() const { return size.pixels() * K; }
  int64_t windows() const { return pooled(size.height) * pooled(size.width); }
  int64_t results() const { return windows() * K; }

  // Gradients of taps and bias, summed over pictures; group(begin, end, taps, bias) adds some.
  template <class Group>
  void sum_gradients(Group group, T* grad_taps, T* grad_bias) const {
    const Groups groups(pictures);
    Numbers partial;
    T *taps = partial.zeros(groups.count * (kAllTaps + K)), *bias = taps + groups.count * kAllTaps;
    parallel_for(groups.count, threads, [&](int64_t n) {
      group(groups.begin(n), groups.end(n), taps + n * kAllTaps, bias + n * K);
    });
    groups.add_up(taps, kAllTaps, grad_taps);
    groups.add_up(bias, K, grad_bias);
  }
};

}  // namespace fastweights
