// Pinned: a counted reference to an object that somebody else owns and destroys only while it has none.
#ifndef FURROW_BASE_PINNED_H_
#define FURROW_BASE_PINNED_H_

#include <cstddef>
#include <utility>

namespace furrow {

// T has a member `uint32_t pins`, 0 at first, which only Pinned changes. The count is a plain integer: all
// references to one object belong to one thread.
template <class T>
class Pinned {
 public:
  Pinned() = default;
  Pinned(std::nullptr_t) {}
  Pinned(T* object) : object_(object) {
    if (object_ != nullptr) ++object_->pins;
  }
  Pinned(const Pinned& other) : Pinned(other.object_) {}
  Pinned(Pinned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Pinned& operator=(Pinned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Pinned() {
    if (object_ != nullptr) --object_->pins;
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  friend bool operator==(const Pinned& a, const T* b) { return a.object_ == b; }

 private:
  T* object_ = nullptr;
};

}  // namespace furrow

#endif  // FURROW_BASE_PINNED_H_
