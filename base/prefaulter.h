// Prefaulter: a thread that maps the pages of memory files before anybody needs them. Otherwise each page is
// mapped when it is first touched, which costs the transaction that does so a microsecond or two.
#ifndef FURROW_BASE_PREFAULTER_H_
#define FURROW_BASE_PREFAULTER_H_

#include <atomic>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace furrow {

class Prefaulter {
 public:
  Prefaulter() = default;
  ~Prefaulter();  // after the step that is under way
  Prefaulter(const Prefaulter&) = delete;
  Prefaulter& operator=(const Prefaulter&) = delete;

  // Reads the pages of `file` in the background, in order, 2 MB at a time; the bytes stay as they are. Any
  // thread. The file may be used meanwhile, and may die: its memory is held for one step at most. Kernels
  // before 5.14 cannot do it: nothing happens. A file that waits takes 16 bytes, also when it has died.
  void Add(const MemoryFile& file) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when everything that was added has been mapped.
  void WaitUntilIdle() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::weak_ptr<const MemoryFile::Mapping>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> stop_{false};  // written under mutex_
  Thread thread_;                  // started with the first file, under mutex_
};

}  // namespace furrow

#endif  // FURROW_BASE_PREFAULTER_H_
