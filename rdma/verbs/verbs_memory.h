// VerbsMemory: what a fabric has registered with its device. Registration pins the pages; the keys are the
// device's.
//
// Rights: memory for peers to read gets remote read, memory for them to write remote write, none more; every
// piece gets local write, since it may be the target of a READ. On iWARP the target of a READ needs remote
// write, which kNone has there; a READ into memory that peers may only read fails on iWARP's cards. Relaxed
// ordering is never asked for: a record must not be overtaken by its notification.
//
// The keys of cards are not random. They need not be: only queue pairs of the same protection domain can use
// them, and a fabric connects such a pair only with a peer that has proved that it knows the cluster's
// secret.
#ifndef FURROW_RDMA_VERBS_VERBS_MEMORY_H_
#define FURROW_RDMA_VERBS_VERBS_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "rdma/fabric.h"

struct ibv_mr;

namespace furrow::rdma {

class VerbsDevice;

// Local memory that requests may name, and the key for it.
struct KeyRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  uint32_t key = 0;
};

// Thread-safe.
class VerbsMemory {
 public:
  // `device` outlives it.
  explicit VerbsMemory(const VerbsDevice& device) : device_(device) {}
  ~VerbsMemory();

  absl::StatusOr<ibv_mr*> Add(std::span<std::byte> bytes, Access access);
  void Remove(ibv_mr* registration);
  static RemoteAddress AddressOf(const ibv_mr* registration);
  static uint32_t LocalKey(const ibv_mr* registration);

  // Changes with every registration and deregistration.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  std::vector<KeyRange> ranges() const;  // by begin
  size_t count() const;

 private:
  const VerbsDevice& device_;
  std::atomic<uint64_t> version_{1};
  mutable Mutex mutex_;
  std::vector<KeyRange> ranges_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Finds the keys of local buffers; one owner. It keeps a copy of the ranges, and the one used last.
class LocalKeys {
 public:
  explicit LocalKeys(std::shared_ptr<const VerbsMemory> memory) : memory_(std::move(memory)) {}
  // Null: the buffer does not lie in one registered piece.
  const KeyRange* Find(std::span<const std::byte> bytes) {
    if (last_.begin <= bytes.data() && bytes.data() + bytes.size() <= last_.end &&
        memory_->version() == version_) [[likely]] {
      return &last_;
    }
    return FindSlowly(bytes);
  }

 private:
  const KeyRange* FindSlowly(std::span<const std::byte> bytes);
  const std::shared_ptr<const VerbsMemory> memory_;
  uint64_t version_ = 0;
  std::vector<KeyRange> ranges_;
  KeyRange last_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_MEMORY_H_
