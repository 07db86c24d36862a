#include "base/prefaulter.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace furrow {
namespace {

// A step holds the lock of the process's memory map for reading: well under a millisecond.
constexpr size_t kStepBytes = size_t{2} << 20;

// False: this kernel cannot. Reading maps many pages at a time, and maps them writable: the file is shared
// memory, whose pages nobody wants to hear of when they become dirty.
bool TouchPages(std::byte* data, size_t bytes) {
#ifdef MADV_POPULATE_READ
  return madvise(data, bytes, MADV_POPULATE_READ) == 0 || errno != EINVAL;
#else
  return false;
#endif
}

// Touches what lies at `at`; false: nothing, since the file ends before, or is gone, or this kernel cannot.
bool TouchStep(const std::weak_ptr<const MemoryFile::Mapping>& file, size_t at) {
  const std::shared_ptr<const MemoryFile::Mapping> mapping = file.lock();
  return mapping != nullptr && at < mapping->bytes &&
         TouchPages(mapping->data + at, std::min(kStepBytes, mapping->bytes - at));
}

}  // namespace

Prefaulter::~Prefaulter() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  thread_.Join();
}

void Prefaulter::Add(const MemoryFile& file) {
  if (file.mapping() == nullptr) return;
  MutexLock lock(&mutex_);
  waiting_.push_back(file.mapping());
  if (!thread_.joinable()) thread_ = Thread({.name = "prefault"}, [this] { Run(); });
  changed_.SignalAll();
}

void Prefaulter::WaitUntilIdle() {
  MutexLock lock(&mutex_);
  while (busy_ || !waiting_.empty()) changed_.Wait(&mutex_);
}

void Prefaulter::Run() {
  MutexLock lock(&mutex_);
  while (!stop_) {
    if (waiting_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const std::weak_ptr<const MemoryFile::Mapping> file = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    mutex_.Unlock();
    for (size_t at = 0; !stop_.load(std::memory_order_relaxed) && TouchStep(file, at); at += kStepBytes) {
    }
    mutex_.Lock();
    busy_ = false;
    changed_.SignalAll();
  }
}

}  // namespace furrow
