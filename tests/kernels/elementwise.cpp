// Lets the tests call the vector functions that the kernels inline.
#include "call.h"
#include "elementwise.h"

using namespace fastweights;

template <class Function>
static void over_rows(const int64_t* layout, void* const* addresses, Function function) {
  Call call(layout, addresses);
  int64_t count = call.integer();
  auto from = call.tensor<const T>();
  auto to = call.tensor<T>();
  for (int64_t i = 0; i < count; i += P) {
    int64_t live = count - i < P ? count - i : P;
    function(Row<T, P>::load(from.data + i, live)).store(to.data + i, live);
  }
}

FW_EXPORT void exponential(const int64_t* layout, void* const* addresses) {
  over_rows(layout, addresses, [](auto row) { return exp(row); });
}

FW_EXPORT void hyperbolic_tangent(const int64_t* layout, void* const* addresses) {
  over_rows(layout, addresses, [](auto row) { return tanh(row); });
}

FW_EXPORT void logistic(const int64_t* layout, void* const* addresses) {
  over_rows(layout, addresses, [](auto row) { return sigmoid(row); });
}
