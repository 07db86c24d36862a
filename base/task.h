// Task<T>: the coroutine type of application code, SQL execution and the commit coordinator.
//
// - Lazy: the body starts when the task is awaited (or spawned on an EventLoop) and runs on the awaiting
// thread.
// - Starting and finishing are symmetric transfers: a chain of tasks that finish at once never recurses, also
//   without optimisation.
// - A Task owns its frame; destroying it destroys a suspended frame and all that the frame owns.
// - An exception that leaves the body is rethrown to the awaiter. Furrow itself throws none.
// Rules for authors: parameters by value (or references that outlive the task), no capturing lambda coroutine
// that dies before its frame, no lock held across co_await.
#ifndef FURROW_BASE_TASK_H_
#define FURROW_BASE_TASK_H_

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/frame_pool.h"

namespace furrow {

template <class T>
class Task;

namespace internal {

class PromiseBase {
 public:
  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> h) const noexcept {
      return h.promise().continuation_;
    }
    void await_resume() const noexcept {}
  };

  static void* operator new(size_t bytes) { return AllocateFrame(bytes); }
  static void operator delete(void* frame, size_t bytes) { FreeFrame(frame, bytes); }

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { exception_ = std::current_exception(); }
  void set_continuation(std::coroutine_handle<> c) { continuation_ = c; }

 protected:
  void RethrowIfFailed() {
    if (exception_ != nullptr) [[unlikely]]
      std::rethrow_exception(std::move(exception_));
  }

 private:
  std::coroutine_handle<> continuation_ = std::noop_coroutine();
  std::exception_ptr exception_;
};

template <class T>
class Promise : public PromiseBase {
 public:
  Task<T> get_return_object() noexcept;
  template <class U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T Take() {
    RethrowIfFailed();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <>
class Promise<void> : public PromiseBase {
 public:
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void Take() { RethrowIfFailed(); }
};

}  // namespace internal

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      Reset();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() { Reset(); }

  explicit operator bool() const { return static_cast<bool>(handle_); }

  struct Awaiter {
    Handle handle;
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const noexcept {
      handle.promise().set_continuation(awaiting);
      return handle;
    }
    T await_resume() const { return handle.promise().Take(); }
  };
  // Awaited once at most; the task must outlive the await (a temporary in the co_await expression does).
  Awaiter operator co_await() const noexcept {
    FURROW_DCHECK(handle_);
    return Awaiter{handle_};
  }

 private:
  void Reset() {
    if (handle_) std::exchange(handle_, {}).destroy();
  }
  Handle handle_;
};

namespace internal {
template <class T>
Task<T> Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace internal

}  // namespace furrow

#endif  // FURROW_BASE_TASK_H_
