// UrgentCase: what a lease's messages meet.
#include <array>
#include <atomic>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "bench/fabric_cases.h"

namespace furrow::bench {

using rdma::Opcode;
using rdma::WorkRequest;

namespace {

constexpr Nanos kPause = kMillisecond;  // between an answer and the next probe
constexpr size_t kLoads = 2;            // connections
constexpr uint64_t kWindow = 8;         // requests under way on each

double Micros(Nanos ns) { return static_cast<double>(ns) / 1000; }

// Connections that always have READs and WRITEs of 64 KB under way, in a thread of their own.
class Load {
 public:
  static absl::StatusOr<std::unique_ptr<Load>> Connect(rdma::Fabric& fabric, const rdma::Endpoint& to) {
    std::unique_ptr<Load> load(new Load());
    FURROW_ASSIGN_OR_RETURN(load->queue_, WireQueue::Create(fabric));
    for (WireLink*& link : load->links_) {
      FURROW_ASSIGN_OR_RETURN(link,
                              load->queue_->Connect(to, {.max_requests = 4 * kWindow, .max_receives = 0}));
    }
    return load;
  }
  ~Load() { (void)Stop(); }

  // `probes` > 0: probes go over one of these connections, too, between the data.
  void Start(uint64_t probes) {
    probes_ = probes;
    stopping_.store(false);
    thread_ = Thread({.name = "bench-load"}, [this] { status_ = Run(); });
  }
  // Until all probes have been answered.
  absl::Status JoinProbes() {
    thread_.Join();
    return status_;
  }
  absl::Status Stop() {
    stopping_.store(true);
    return JoinProbes();
  }
  double mb_per_second() const { return mb_per_second_; }
  const Histogram& probe_ns() const { return probe_ns_; }

 private:
  absl::Status Run() {
    const Nanos start = MonotonicClock().Now();
    uint64_t before = 0;
    for (WireLink* link : links_) before += link->ended;
    for (std::array<uint64_t, kLoads> posted = {links_[0]->ended, links_[1]->ended};;) {
      const bool stop =
          stopping_.load(std::memory_order_relaxed) || (probes_ > 0 && probe_ns_.count() >= probes_);
      bool under_way = false;
      for (size_t i = 0; i < kLoads; ++i) {
        WireLink& link = *links_[i];
        FURROW_RETURN_IF_ERROR(WireQueue::Check(link));
        for (; !stop && posted[i] - link.ended < kWindow; ++posted[i]) {
          FURROW_RETURN_IF_ERROR(link.connection->Post(Request(link, posted[i])));
        }
        under_way |= posted[i] > link.ended;
      }
      if (stop && !under_way) break;
      if (!stop && probes_ > 0) FURROW_RETURN_IF_ERROR(Probe(*links_[0]));
      queue_->Poll();
    }
    uint64_t after = 0;
    for (WireLink* link : links_) after += link->ended;
    mb_per_second_ = static_cast<double>((after - before) * WireQueue::kMaxBytes) * 1e3 /
                     static_cast<double>(MonotonicClock().Now() - start);
    return absl::OkStatus();
  }
  WorkRequest Request(const WireLink& link, uint64_t number) const {
    WorkRequest request;
    request.opcode = number % 2 == 0 ? Opcode::kRead : Opcode::kWrite;
    request.local = queue_->bytes(request.opcode == Opcode::kRead ? WireQueue::kBulk : WireQueue::kOutbox,
                                  WireQueue::kMaxBytes);
    request.remote = link.peer.Plus(WireQueue::kBulk);
    return request;
  }
  absl::Status Probe(WireLink& link) {
    const Nanos now = MonotonicClock().Now();
    if (probing_since_ != 0) {
      if (link.notified[kProbeChannel] == answered_) return absl::OkStatus();
      answered_ = link.notified[kProbeChannel];
      probe_ns_.Record(now - std::exchange(probing_since_, 0));
      next_probe_ = now + kPause;
    } else if (now >= next_probe_) {
      probing_since_ = now;
      return WireQueue::Probe(link, queue_->bytes(0, WireQueue::kProbeBytes));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<WireQueue> queue_;
  std::array<WireLink*, kLoads> links_ = {};
  uint64_t probes_ = 0;
  std::atomic<bool> stopping_{false};
  // The thread's while it runs.
  Nanos probing_since_ = 0;  // 0: no probe is under way
  Nanos next_probe_ = 0;
  uint64_t answered_ = 0;
  Histogram probe_ns_;
  double mb_per_second_ = 0;
  absl::Status status_;
  Thread thread_;
};

absl::Status Probes(WireQueue& queue, WireLink& link, uint64_t count, Histogram* ns) {
  const Clock& clock = MonotonicClock();
  for (uint64_t i = 0; i < count; ++i) {
    SleepThreadUntil(clock.Now() + kPause);
    const uint64_t wanted = link.notified[kProbeChannel] + 1;
    const Nanos start = clock.Now();
    FURROW_RETURN_IF_ERROR(WireQueue::Probe(link, queue.bytes(0, WireQueue::kProbeBytes)));
    FURROW_RETURN_IF_ERROR(queue.AwaitParked(link, &link.notified[kProbeChannel], wanted));
    ns->Record(clock.Now() - start);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UrgentCase> UrgentCase::Run(rdma::Fabric& fabric, const rdma::Endpoint& to, uint64_t probes) {
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<WireQueue> queue, WireQueue::Create(fabric));
  rdma::ConnectionLimits limits{.max_requests = 64, .max_receives = 0};
  FURROW_ASSIGN_OR_RETURN(WireLink * ordinary, queue->Connect(to, limits));
  limits.urgent = true;
  FURROW_ASSIGN_OR_RETURN(WireLink * urgent, queue->Connect(to, limits));
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<Load> load, Load::Connect(fabric, to));
  UrgentCase result;
  for (bool loaded : {false, true}) {
    for (WireLink* link : {urgent, ordinary}) {
      Row row{.name = link == urgent ? "urgent" : "ordinary"};
      if (loaded) load->Start(0);
      FURROW_RETURN_IF_ERROR(Probes(*queue, *link, probes, &row.ns));
      if (loaded) {
        FURROW_RETURN_IF_ERROR(load->Stop());
        row.load_mb_per_second = load->mb_per_second();
      }
      result.rows_.push_back(std::move(row));
    }
  }
  load->Start(probes);
  FURROW_RETURN_IF_ERROR(load->JoinProbes());
  result.rows_.push_back({"the load's own", load->mb_per_second(), load->probe_ns()});
  return result;
}

void UrgentCase::Print() const {
  std::printf(
      "\nMessages as those of leases: a WRITE of %zu bytes that wakes, and its answer, microseconds per "
      "round "
      "trip; both\nsides sleep. Load: %zu other connections with %lu READs and WRITEs of 64 KB under way "
      "each, by "
      "another thread.\n\n%-16s %10s %9s %9s %9s %9s\n",
      WireQueue::kProbeBytes, kLoads, kWindow, "connection", "load MB/s", "p50", "p99", "p99.9", "max");
  for (const Row& row : rows_) {
    std::printf("%-16s %10.1f %9.1f %9.1f %9.1f %9.1f\n", row.name.c_str(), row.load_mb_per_second,
                Micros(row.ns.Percentile(50)), Micros(row.ns.Percentile(99)), Micros(row.ns.Percentile(99.9)),
                Micros(row.ns.max()));
  }
}

void UrgentCase::AddTo(JsonWriter& json) const {
  json.BeginArray("urgent_ns");
  for (const Row& row : rows_) {
    json.BeginObject();
    json.Add("connection", row.name);
    json.Add("load_mb_per_second", row.load_mb_per_second);
    json.Add("count", row.ns.count());
    json.Add("p50", static_cast<double>(row.ns.Percentile(50)));
    json.Add("p99", static_cast<double>(row.ns.Percentile(99)));
    json.Add("p99_9", static_cast<double>(row.ns.Percentile(99.9)));
    json.Add("max", static_cast<double>(row.ns.max()));
    json.End();
  }
  json.End();
}

}  // namespace furrow::bench
