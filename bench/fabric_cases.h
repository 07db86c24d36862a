// What `furrow-bench fabric` measures over raw connections: latency by kind of request, rates, and what
// other connections' traffic does to the one that carries leases.
#ifndef FURROW_BENCH_FABRIC_CASES_H_
#define FURROW_BENCH_FABRIC_CASES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/histogram.h"
#include "bench/fabric_site.h"
#include "bench/fabric_wire.h"
#include "bench/harness/json.h"
#include "rdma/fabric.h"

namespace furrow::bench {

struct WireSettings {
  std::vector<size_t> sizes;
  uint64_t count = 20'000;  // operations per case
  uint64_t batch = 16;      // requests per Post(), of which the last one asks for its end
  uint64_t depth = 128;     // requests under way at most
  uint64_t probes = 2'000;  // of each case of urgent connections
};

// The source's side of one connection.
class WireCases {
 public:
  struct Latency {
    std::string name;
    size_t bytes = 0;
    Histogram ns{};
  };
  struct Rate {
    std::string name;
    size_t bytes = 0;
    double per_second = 0;
    double mb_per_second() const { return per_second * static_cast<double>(bytes) / 1e6; }
  };
  static bool IsCase(std::string_view name);

  static absl::StatusOr<std::unique_ptr<WireCases>> Connect(rdma::Fabric& fabric, const rdma::Endpoint& to,
                                                            const WireSettings& settings);
  // The case in all sizes. `name` is one of:
  //   read-latency    one READ at a time, from Post() until its end is polled
  //   write-latency   half a round trip of WRITEs that each side sees in its memory (PingWrites)
  //   notify-latency  half a round trip of WRITEs that notify (PingNotifications)
  //   read-rate, write-rate   batches, with up to `depth` requests under way
  absl::Status Run(std::string_view name);
  void Print() const;
  void AddTo(JsonWriter& json) const;

 private:
  explicit WireCases(const WireSettings& settings) : settings_(settings) {}
  absl::Status Reads(size_t bytes, Histogram* ns);
  absl::Status Pings(WireCommand::Kind kind, size_t bytes, Histogram* ns);
  absl::StatusOr<double> PerSecond(rdma::Opcode opcode, size_t bytes);

  const WireSettings settings_;
  std::unique_ptr<WireQueue> queue_;
  WireLink* link_ = nullptr;
  std::vector<Latency> latencies_;
  std::vector<Rate> rates_;
};

// Round trips of 64 bytes as members' beats are: a WRITE that wakes and its answer, both sides asleep
// meanwhile. Idle, and while two other connections of another thread move 64 KB with each READ and WRITE.
class UrgentCase {
 public:
  struct Row {
    std::string name;
    double load_mb_per_second = 0;
    Histogram ns{};
  };
  static absl::StatusOr<UrgentCase> Run(rdma::Fabric& fabric, const rdma::Endpoint& to, uint64_t probes);
  void Print() const;
  void AddTo(JsonWriter& json) const;

 private:
  std::vector<Row> rows_;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_FABRIC_CASES_H_
