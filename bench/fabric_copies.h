// The parts of `furrow-bench fabric` that run over a mesh of rings, each with a target process of its own:
// READ and WRITE beside a plain memcpy of the same bytes, and round trips of messages through rings.
#ifndef FURROW_BENCH_FABRIC_COPIES_H_
#define FURROW_BENCH_FABRIC_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/histogram.h"
#include "bench/fabric_peer.h"
#include "bench/fabric_site.h"
#include "bench/harness/json.h"

namespace furrow::bench {

struct MeshSettings {
  FabricSite site;       // ours
  FabricSite peer_site;  // of the target processes that are started
  uint64_t memory_mb = 256;
  uint64_t milliseconds = 100;  // of each case of copies
  uint64_t round_trips = 20'000;
};

// Nanoseconds per operation.
struct CopyRow {
  size_t bytes = 0;
  double copy_near, copy_far;                // memcpy: one place; random places
  double read_near, read_far, read_batched;  // one request at a time; a batch per Post()
  double write_near, write_far, write_batched;
};
absl::StatusOr<std::vector<CopyRow>> RunCopies(const MeshSettings& settings);
void PrintCopies(const MeshSettings& settings, const std::vector<CopyRow>& rows);
void AddCopies(const std::vector<CopyRow>& rows, JsonWriter& json);

struct RingRow {
  size_t bytes = 0;
  Waiting waiting = Waiting::kSpin;
  Histogram latency;
};
// Both ways of waiting.
absl::StatusOr<std::vector<RingRow>> RunRings(const MeshSettings& settings);
void PrintRings(const std::vector<RingRow>& rows);
void AddRings(const std::vector<RingRow>& rows, JsonWriter& json);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_FABRIC_COPIES_H_
