#include "bench/fabric_cases.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace furrow::bench {

using rdma::Opcode;
using rdma::WorkRequest;

namespace {

constexpr std::string_view kReadLatency = "read-latency";
constexpr std::string_view kWriteLatency = "write-latency";
constexpr std::string_view kNotifyLatency = "notify-latency";
constexpr std::string_view kReadRate = "read-rate";
constexpr std::string_view kWriteRate = "write-rate";

double Micros(Nanos ns) { return static_cast<double>(ns) / 1000; }

}  // namespace

bool WireCases::IsCase(std::string_view name) {
  return name == kReadLatency || name == kWriteLatency || name == kNotifyLatency || name == kReadRate ||
         name == kWriteRate;
}

absl::StatusOr<std::unique_ptr<WireCases>> WireCases::Connect(rdma::Fabric& fabric, const rdma::Endpoint& to,
                                                              const WireSettings& settings) {
  std::unique_ptr<WireCases> cases(new WireCases(settings));
  FURROW_ASSIGN_OR_RETURN(cases->queue_, WireQueue::Create(fabric));
  const rdma::ConnectionLimits limits{.max_requests = static_cast<uint32_t>(settings.depth + settings.batch),
                                      .max_receives = 0};
  FURROW_ASSIGN_OR_RETURN(cases->link_, cases->queue_->Connect(to, limits));
  return cases;
}

absl::Status WireCases::Run(std::string_view name) {
  for (size_t bytes : settings_.sizes) {
    if (name == kReadRate || name == kWriteRate) {
      const Opcode opcode = name == kReadRate ? Opcode::kRead : Opcode::kWrite;
      FURROW_ASSIGN_OR_RETURN(double per_second, PerSecond(opcode, bytes));
      rates_.push_back({std::string(name), bytes, per_second});
      continue;
    }
    Latency latency{.name = std::string(name), .bytes = bytes};
    if (name == kReadLatency) {
      FURROW_RETURN_IF_ERROR(Reads(bytes, &latency.ns));
    } else {
      const auto kind = name == kWriteLatency ? WireCommand::kPingWrites : WireCommand::kPingNotifications;
      FURROW_RETURN_IF_ERROR(Pings(kind, bytes, &latency.ns));
    }
    latencies_.push_back(std::move(latency));
  }
  return absl::OkStatus();
}

absl::Status WireCases::Reads(size_t bytes, Histogram* ns) {
  WorkRequest request;
  request.opcode = Opcode::kRead;
  request.local = queue_->bytes(WireQueue::kOutbox, bytes);
  request.remote = link_->peer.Plus(WireQueue::kBulk);
  const Clock& clock = MonotonicClock();
  for (uint64_t i = 0; i < settings_.count; ++i) {
    const Nanos start = clock.Now();
    const uint64_t wanted = link_->ended + 1;
    FURROW_RETURN_IF_ERROR(link_->connection->Post(request));
    FURROW_RETURN_IF_ERROR(queue_->Await(*link_, &link_->ended, wanted));
    ns->Record(clock.Now() - start);
  }
  return absl::OkStatus();
}

absl::Status WireCases::Pings(WireCommand::Kind kind, size_t bytes, Histogram* ns) {
  WireCommand command{.kind = kind, .bytes = static_cast<uint32_t>(bytes), .count = settings_.count};
  queue_->bytes(0, bytes).back() = std::byte{0};
  const uint64_t ready = link_->notified[kReadyChannel] + 1;
  FURROW_RETURN_IF_ERROR(queue_->Tell(*link_, WireQueue::kCommands,
                                      std::as_writable_bytes(std::span(&command, 1)), kCommandChannel));
  FURROW_RETURN_IF_ERROR(queue_->Await(*link_, &link_->notified[kReadyChannel], ready));
  const auto play = kind == WireCommand::kPingWrites ? PingWrites : PingNotifications;
  return play(*queue_, *link_, bytes, settings_.count, ns);
}

absl::StatusOr<double> WireCases::PerSecond(Opcode opcode, size_t bytes) {
  const uint64_t batch = settings_.batch;
  std::vector<WorkRequest> requests(batch);
  for (WorkRequest& request : requests) {
    request.opcode = opcode;
    request.signaled = false;
    request.local = queue_->bytes(WireQueue::kOutbox, bytes);
    request.remote = link_->peer.Plus(WireQueue::kBulk);
  }
  requests.back().signaled = true;
  const uint64_t before = link_->ended;
  const uint64_t batches = std::max<uint64_t>(settings_.count / batch, 1);
  const uint64_t most = std::max<uint64_t>(settings_.depth / batch, 1);
  const Nanos start = MonotonicClock().Now();
  for (uint64_t posted = 0; link_->ended - before < batches;) {
    for (; posted < batches && posted - (link_->ended - before) < most; ++posted) {
      FURROW_RETURN_IF_ERROR(link_->connection->Post(requests));
    }
    FURROW_RETURN_IF_ERROR(queue_->Await(*link_, &link_->ended, link_->ended + 1));
  }
  const Nanos took = std::max<Nanos>(MonotonicClock().Now() - start, 1);
  return static_cast<double>(batches * batch) * kSecond / static_cast<double>(took);
}

void WireCases::Print() const {
  if (!latencies_.empty()) {
    std::printf(
        "\nOne request at a time, microseconds; both sides poll. READ: until its end was polled. WRITE, "
        "notify: "
        "half a\nround trip; WRITEs are seen in memory, notifications polled.\n\n%-16s %7s %9s %9s %9s %9s\n",
        "case", "bytes", "min", "p50", "p99", "mean");
  }
  for (const Latency& row : latencies_) {
    std::printf("%-16s %7zu %9.2f %9.2f %9.2f %9.2f\n", row.name.c_str(), row.bytes, Micros(row.ns.min()),
                Micros(row.ns.Percentile(50)), Micros(row.ns.Percentile(99)), row.ns.mean() / 1000);
  }
  if (!rates_.empty()) {
    std::printf("\n%lu requests per Post(), at most %lu under way.\n\n%-16s %7s %12s %9s\n", settings_.batch,
                settings_.depth, "case", "bytes", "requests/s", "MB/s");
  }
  for (const Rate& row : rates_) {
    std::printf("%-16s %7zu %12.0f %9.1f\n", row.name.c_str(), row.bytes, row.per_second,
                row.mb_per_second());
  }
}

void WireCases::AddTo(JsonWriter& json) const {
  json.BeginArray("latencies_ns");
  for (const Latency& row : latencies_) {
    json.BeginObject();
    json.Add("case", row.name);
    json.Add("bytes", uint64_t{row.bytes});
    json.Add("count", row.ns.count());
    json.Add("min", static_cast<double>(row.ns.min()));
    json.Add("p50", static_cast<double>(row.ns.Percentile(50)));
    json.Add("p99", static_cast<double>(row.ns.Percentile(99)));
    json.Add("mean", row.ns.mean());
    json.End();
  }
  json.End();
  json.BeginArray("rates");
  for (const Rate& row : rates_) {
    json.BeginObject();
    json.Add("case", row.name);
    json.Add("bytes", uint64_t{row.bytes});
    json.Add("per_second", row.per_second);
    json.Add("mb_per_second", row.mb_per_second());
    json.End();
  }
  json.End();
}

}  // namespace furrow::bench
