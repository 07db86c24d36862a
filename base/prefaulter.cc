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
    std::shared_ptr<const MemoryFile::Mapping> mapping = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    bool possible = true;
    // Nobody else has it: its file is gone.
    for (size_t at = 0; at < mapping->bytes && possible && !stop_ && mapping.use_count() > 1;) {
      const size_t step = std::min(kStepBytes, mapping->bytes - at);
      mutex_.Unlock();
      possible = TouchPages(mapping->data + at, step);
      mutex_.Lock();
      at += step;
    }
    mapping.reset();
    busy_ = false;
    changed_.SignalAll();
  }
}

}  // namespace furrow
