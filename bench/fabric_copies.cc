#include "bench/fabric_copies.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace furrow::bench {
namespace {

using rdma::Opcode;
using rdma::WorkRequest;

constexpr std::array<size_t, 9> kSizes = {8, 64, 256, 512, 1024, 4096, 16384, 32768, 65536};
constexpr std::array<size_t, 4> kMessageSizes = {16, 256, 1024, 8192};
constexpr size_t kBatch = 16;
constexpr size_t kPlaces = 1 << 20;  // random lines that a case goes through: more than the caches hold
constexpr size_t kStretchBytes = 256 << 10;
constexpr size_t kStretchOperations = 256;

// Nanoseconds per operation: the median over many short stretches, so that those in which the core was taken
// away do not count. `run` does `operations` operations from the given place on.
template <class F>
double Measure(const MeshSettings& settings, size_t operations, F&& run) {
  const Clock& clock = MonotonicClock();
  std::vector<double> stretches;
  size_t place = 0;
  const Nanos end = clock.Now() + static_cast<Nanos>(settings.milliseconds) * kMillisecond;
  do {
    const Nanos start = clock.Now();
    run(place);
    stretches.push_back(static_cast<double>(clock.Now() - start) / static_cast<double>(operations));
    place = (place + operations) % (kPlaces - operations);
  } while (clock.Now() < end || stretches.size() < 11);
  std::nth_element(stretches.begin(), stretches.begin() + stretches.size() / 2, stretches.end());
  return stretches[stretches.size() / 2];
}

class CopyBench {
 public:
  CopyBench(const MeshSettings& settings, FabricPeer& peer, rdma::RemoteAddress target)
      : settings_(settings), peer_(peer), target_(target) {}

  // Maps each page of the target here, so that no case pays for that.
  absl::Status TouchAll() {
    for (size_t at = 0; at < peer_.memory().size(); at += 4096) {
      WorkRequest request;
      request.opcode = Opcode::kWrite;
      request.signaled = false;
      request.local = peer_.memory().first(8);
      request.remote = target_.Plus(at);
      FURROW_RETURN_IF_ERROR(peer_.connection().Post(request));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<CopyRow> Run(size_t bytes) {
    const size_t span = peer_.memory().size() - bytes;
    Random random(bytes);
    places_.clear();
    for (size_t i = 0; i < kPlaces; ++i) places_.push_back(random.Below(span / 64) * 64);
    // The private side: a buffer that stays in the cache, as those of a database do.
    local_ = peer_.memory().first(bytes);
    CopyRow row;
    row.bytes = bytes;
    const size_t rounds = std::clamp(kStretchBytes / bytes, kBatch, kStretchOperations);
    const auto copy = [&](bool far) {
      return Measure(settings_, rounds, [&](size_t place) {
        for (size_t i = 0; i < rounds; ++i) {
          std::memcpy(local_.data(), peer_.memory().data() + places_[far ? place + i : 0], bytes);
          __asm__ volatile("" ::: "memory");
        }
      });
    };
    row.copy_near = copy(false);
    row.copy_far = copy(true);
    row.read_near = Requests(Opcode::kRead, rounds, 1, false);
    row.read_far = Requests(Opcode::kRead, rounds, 1, true);
    row.read_batched = Requests(Opcode::kRead, rounds, kBatch, true);
    row.write_near = Requests(Opcode::kWrite, rounds, 1, false);
    row.write_far = Requests(Opcode::kWrite, rounds, 1, true);
    row.write_batched = Requests(Opcode::kWrite, rounds, kBatch, true);
    if (failed_ > 0) return absl::InternalError(absl::StrCat(failed_, " requests failed"));
    return row;
  }

 private:
  double Requests(Opcode opcode, size_t rounds, size_t batch, bool far) {
    std::array<WorkRequest, kBatch> requests;
    std::array<rdma::Completion, kBatch> completions;
    for (WorkRequest& request : requests) {
      request.opcode = opcode;
      request.local = local_;
      request.id = 1;
    }
    return Measure(settings_, rounds, [&](size_t place) {
      for (size_t i = 0; i < rounds; i += batch) {
        for (size_t k = 0; k < batch; ++k)
          requests[k].remote = target_.Plus(places_[far ? place + i + k : 0]);
        failed_ += !peer_.connection().Post(std::span(requests).first(batch)).ok();
        for (size_t done = 0; done < batch;) {
          const size_t count = peer_.queue().Poll(completions);
          for (size_t k = 0; k < count; ++k) failed_ += completions[k].status != rdma::CompletionStatus::kOk;
          done += count;
        }
      }
    });
  }

  const MeshSettings& settings_;
  FabricPeer& peer_;
  const rdma::RemoteAddress target_;
  std::vector<uint64_t> places_;
  std::span<std::byte> local_;
  uint64_t failed_ = 0;
};

// A target process and our side of the connection to it.
struct Session {
  std::unique_ptr<ChildProcess> child;
  std::unique_ptr<FabricPeer> peer;
  rdma::RemoteAddress target;
};

absl::StatusOr<Session> Open(const MeshSettings& settings, Waiting waiting) {
  Session session;
  std::vector<std::string> arguments = {"fabric", "--target", "--memory-mb",
                                        absl::StrCat(settings.memory_mb)};
  if (settings.peer_site.address.empty()) {
    arguments.insert(arguments.end(), {"--directory", settings.peer_site.directory});
  } else {
    arguments.insert(arguments.end(), {"--address", settings.peer_site.address});
  }
  if (waiting == Waiting::kPark) arguments.push_back("--park");
  FURROW_ASSIGN_OR_RETURN(session.child, ChildProcess::Start(ChildProcess::Self(), arguments));
  const rdma::Endpoint endpoint = session.child->ReadLine();
  if (endpoint.empty()) return absl::UnavailableError("the target process did not start");
  FURROW_ASSIGN_OR_RETURN(session.target, ParsePlace(session.child->ReadLine()));
  FURROW_ASSIGN_OR_RETURN(session.peer,
                          FabricPeer::Create(kSourceNode, settings.site, settings.memory_mb << 20));
  FURROW_RETURN_IF_ERROR(session.peer->Connect(endpoint, Waiting::kPark));
  return session;
}

absl::Status RunRingsWaiting(const MeshSettings& settings, Waiting waiting, std::vector<RingRow>* rows) {
  FURROW_ASSIGN_OR_RETURN(Session session, Open(settings, waiting));
  const uint64_t count = waiting == Waiting::kSpin ? settings.round_trips : settings.round_trips / 4;
  for (size_t bytes : kMessageSizes) {
    RingRow row;
    row.bytes = bytes;
    row.waiting = waiting;
    for (uint64_t i = 0; i < count + count / 10; ++i) {
      const Nanos start = MonotonicClock().Now();
      FURROW_RETURN_IF_ERROR(session.peer->RoundTrip(bytes, waiting));
      if (i >= count / 10) row.latency.Record(MonotonicClock().Now() - start);
    }
    rows->push_back(std::move(row));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<CopyRow>> RunCopies(const MeshSettings& settings) {
  std::vector<CopyRow> rows;
  FURROW_ASSIGN_OR_RETURN(Session session, Open(settings, Waiting::kPark));
  CopyBench bench(settings, *session.peer, session.target);
  FURROW_RETURN_IF_ERROR(bench.TouchAll());
  for (size_t bytes : kSizes) {
    FURROW_ASSIGN_OR_RETURN(CopyRow row, bench.Run(bytes));
    rows.push_back(row);
  }
  return rows;
}

absl::StatusOr<std::vector<RingRow>> RunRings(const MeshSettings& settings) {
  std::vector<RingRow> rows;
  for (Waiting waiting : {Waiting::kSpin, Waiting::kPark})
    FURROW_RETURN_IF_ERROR(RunRingsWaiting(settings, waiting, &rows));
  return rows;
}

void PrintCopies(const MeshSettings& settings, const std::vector<CopyRow>& rows) {
  std::printf(
      "READ and WRITE into another process, ns per operation. one: the same place every time; random: places "
      "in "
      "%lu MB;\nbatch: random places, %zu requests per Post(). memcpy: the same bytes inside one "
      "process.\n\n",
      settings.memory_mb, kBatch);
  std::printf("%7s %9s %9s | %9s %9s %9s %7s | %9s %9s %9s\n", "bytes", "memcpy", "memcpy", "READ", "READ",
              "READ", "READ", "WRITE", "WRITE", "WRITE");
  std::printf("%7s %9s %9s | %9s %9s %9s %7s | %9s %9s %9s\n", "", "one", "random", "one", "random", "batch",
              "GB/s", "one", "random", "batch");
  for (const CopyRow& row : rows) {
    std::printf("%7zu %9.1f %9.1f | %9.1f %9.1f %9.1f %7.2f | %9.1f %9.1f %9.1f\n", row.bytes, row.copy_near,
                row.copy_far, row.read_near, row.read_far, row.read_batched,
                static_cast<double>(row.bytes) / row.read_batched, row.write_near, row.write_far,
                row.write_batched);
  }
}

void PrintRings(const std::vector<RingRow>& rows) {
  std::printf("\nMessage and answer through rings, microseconds per round trip.\n\n%7s %-16s %9s %9s %9s\n",
              "bytes", "waiting", "p50", "p99", "mean");
  for (const RingRow& row : rows) {
    std::printf("%7zu %-16s %9.2f %9.2f %9.2f\n", row.bytes,
                row.waiting == Waiting::kSpin ? "both poll" : "both park",
                static_cast<double>(row.latency.Percentile(50)) / 1000,
                static_cast<double>(row.latency.Percentile(99)) / 1000, row.latency.mean() / 1000);
  }
}

void AddCopies(const std::vector<CopyRow>& rows, JsonWriter& json) {
  json.Add("batch", uint64_t{kBatch});
  json.BeginArray("copies_ns");
  for (const CopyRow& row : rows) {
    json.BeginObject();
    json.Add("bytes", uint64_t{row.bytes});
    json.Add("memcpy_one", row.copy_near);
    json.Add("memcpy_random", row.copy_far);
    json.Add("read_one", row.read_near);
    json.Add("read_random", row.read_far);
    json.Add("read_batch", row.read_batched);
    json.Add("write_one", row.write_near);
    json.Add("write_random", row.write_far);
    json.Add("write_batch", row.write_batched);
    json.End();
  }
  json.End();
}

void AddRings(const std::vector<RingRow>& rows, JsonWriter& json) {
  json.BeginArray("ring_round_trips_ns");
  for (const RingRow& row : rows) {
    json.BeginObject();
    json.Add("bytes", uint64_t{row.bytes});
    json.Add("waiting", row.waiting == Waiting::kSpin ? "poll" : "park");
    json.Add("count", row.latency.count());
    json.Add("p50", static_cast<double>(row.latency.Percentile(50)));
    json.Add("p99", static_cast<double>(row.latency.Percentile(99)));
    json.Add("mean", row.latency.mean());
    json.End();
  }
  json.End();
}

}  // namespace furrow::bench
