// A value or the refusal that took its place: an errno and one sentence that says why.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace uroce {

// `error` is the errno value that the verb returns; `why` names what was wrong and how to mend it,
// without a final stop, e.g. "modify_qp INIT->RTR: missing IBV_QP_DEST_QPN".
struct Refusal {
  int error = 0;
  std::string why;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Refusal refusal) : state_(std::move(refusal)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Refusal& refusal() const { return std::get<1>(state_); }

 private:
  std::variant<T, Refusal> state_;
};

// Success, or a refusal.
struct Done {};
using Status = Result<Done>;

}  // namespace uroce
