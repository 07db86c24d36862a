// StorePoint: the places between two stores of a multi-word update of memory that peers read with one-sided
// READs.
//
// Code that updates such memory word by word (storage's install, the header and the line versions of an
// object) calls StorePoint() after every store. On real hardware a peer's READ may fetch any piece between
// any two stores; under simulation everything runs in one thread, so the simulator installs a StoreObserver
// and lets pieces of pending READs and WRITEs fall there. Builds without FURROW_MUTATIONS compile the call
// away.
#ifndef FURROW_BASE_STORE_POINT_H_
#define FURROW_BASE_STORE_POINT_H_

#include <utility>

namespace furrow {

class StoreObserver {
 public:
  virtual ~StoreObserver() = default;
  // Called between two stores, on the storing thread. May read and write registered memory as a NIC would;
  // must not call code of a node.
  virtual void OnStorePoint() = 0;
};

#ifdef FURROW_MUTATIONS

namespace internal {
inline thread_local constinit StoreObserver* store_observer = nullptr;
}  // namespace internal

inline void StorePoint() {
  if (internal::store_observer != nullptr) internal::store_observer->OnStorePoint();
}
// Sets the observer of the calling thread (null: none) and returns the previous one.
inline StoreObserver* SetStoreObserver(StoreObserver* observer) {
  return std::exchange(internal::store_observer, observer);
}

#else

constexpr void StorePoint() {}
constexpr StoreObserver* SetStoreObserver(StoreObserver*) { return nullptr; }

#endif  // FURROW_MUTATIONS

}  // namespace furrow

#endif  // FURROW_BASE_STORE_POINT_H_
