#include "bench/harness/agent.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "bench/harness/slots.h"
#include "storage/region.h"

namespace furrow::bench {
namespace {

constexpr Nanos kTick = 50 * kMillisecond;
// A job that is given up ends within a table's making, or some rows of a load.
constexpr Nanos kJobEndNs = 10 * kSecond;

std::string Hex(std::string_view text) { return absl::BytesToHexString(Sv(text)); }

}  // namespace

uint64_t ProcessCpuNanos() {
  rusage usage = {};
  (void)::getrusage(RUSAGE_SELF, &usage);
  auto nanos = [](const timeval& t) {
    return uint64_t(t.tv_sec) * kSecond + uint64_t(t.tv_usec) * kMicrosecond;
  };
  return nanos(usage.ru_utime) + nanos(usage.ru_stime);
}

std::string ToLine(const Measurement& measurement) {
  std::string text = measurement.Encode();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

absl::StatusOr<Measurement> FromLine(std::string_view line) {
  std::string text(line);
  std::replace(text.begin(), text.end(), ';', '\n');
  return Measurement::Decode(text);
}

Agent::Agent(AgentOptions options, Host& host, Workload& workload, LineChannel& channel)
    : options_(options), host_(host), workload_(workload), channel_(channel) {}

void Agent::Send(std::string_view line) {
  if (!channel_.Send(line).ok()) quit_ = true;
}

Place Agent::PlaceOf(size_t worker) const {
  return Place{.process = options_.process,
               .processes = options_.processes,
               .worker = static_cast<uint32_t>(worker),
               .workers = static_cast<uint32_t>(host_.workers())};
}

void Agent::Run() {
  while (!quit_) {
    LineChannel* const channels[] = {&channel_};
    WaitForAny(channels, kTick);
    if (!channel_.Fill()) break;
    while (const std::optional<std::string> line = channel_.TakeLine()) Handle(*line);
    Tick();
    if (const absl::Status ended = host_.ended(); !quit_ && !ended.ok()) {
      Send(absl::StrCat("failed ", Hex(ended.ToString())));
      break;
    }
  }
  progress_.stop.store(true, std::memory_order_relaxed);
  if (running_ && !stopping_) Stop();
  AwaitJob();
}

void Agent::Handle(std::string_view line) {
  if (line == "create") {
    RunJob("create", 1,
           [this](size_t, txn::Worker& worker) { return workload_.Create(host_.catalog(), worker); });
  } else if (line == "open") {
    RunJob("open", 1,
           [this](size_t, txn::Worker& worker) { return workload_.Open(host_.catalog(), worker); });
  } else if (line == "load") {
    RunJob("load", host_.workers(), [this](size_t index, txn::Worker& worker) {
      return workload_.Load(worker, PlaceOf(index), &progress_);
    });
  } else if (line == "start") {
    StartDrivers();
  } else if (line == "measure") {
    measured_from_ = MonotonicClock().Now();
    cpu_from_ = ProcessCpuNanos();
    RunJob("measure", host_.workers(), [this](size_t index, txn::Worker&) -> Task<absl::Status> {
      drivers_[index]->ResetMeasurement();
      co_return absl::OkStatus();
    });
  } else if (line == "stop") {
    Stop();
  } else if (line == "drain") {
    RunJob("drain", host_.workers(), [](size_t, txn::Worker& worker) { return worker.Drain(); });
  } else if (line == "check load" || line == "check run") {
    const bool after_load = line == "check load";
    checks_.clear();
    RunJob("check", 1, [this, after_load](size_t, txn::Worker& worker) {
      return workload_.Check(host_, worker, after_load, &checks_);
    });
  } else if (line == "corrupt") {
    const absl::Status status = Corrupt();
    Send(status.ok() ? "corrupt" : absl::StrCat("failed ", Hex(status.ToString())));
  } else {
    quit_ = true;  // "quit", or a parent that is not ours
  }
}

void Agent::RunJob(std::string name, size_t count, Job job) {
  job_name_ = std::move(name);
  job_ = std::move(job);
  job_left_.store(count, std::memory_order_release);
  for (size_t i = 0; i < count; ++i) {
    EventLoop& loop = host_.worker(i).loop();
    loop.Post([this, i, &loop] { loop.Spawn(RunPart(this, i)); });
  }
}

Task<void> Agent::RunPart(Agent* agent, size_t index) {
  absl::Status status = co_await agent->job_(index, agent->host_.worker(index));
  if (!status.ok()) {
    MutexLock lock(&agent->mutex_);
    agent->job_status_.Update(std::move(status));
  }
  MutexLock lock(&agent->mutex_);
  agent->job_left_.fetch_sub(1, std::memory_order_acq_rel);
  agent->job_part_ended_.SignalAll();
}

// Its transactions end with their commits: a member that left in the middle of one would leave its locks, and
// records that nobody truncates.
void Agent::AwaitJob() {
  const Nanos deadline = MonotonicClock().Now() + kJobEndNs;
  MutexLock lock(&mutex_);
  while (job_left_.load(std::memory_order_acquire) > 0) {
    if (!job_part_ended_.WaitUntil(&mutex_, deadline)) return;
  }
}

void Agent::FinishJob() {
  const std::string name = std::exchange(job_name_, {});
  job_ = nullptr;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = std::exchange(job_status_, absl::OkStatus());
  }
  if (!status.ok()) {
    Send(absl::StrCat("failed ", Hex(absl::StrCat(name, ": ", status.ToString()))));
    return;
  }
  if (name == "stop") {
    Measurement all;
    for (const Measurement& m : measurements_) all.Merge(m);
    all.measured_ns = measured_ns_;
    all.cpu_ns = cpu_ns_;
    if (host_.HasHugePages()) Send("huge");
    Send(absl::StrCat("stop ", ToLine(all)));
    return;
  }
  for (const CheckResult& check : checks_) {
    Send(absl::StrCat("check ", check.name, check.pass ? " pass " : " fail ", Hex(check.detail)));
  }
  checks_.clear();
  Send(name);
}

void Agent::StartDrivers() {
  const size_t workers = host_.workers();
  drivers_.clear();
  drivers_running_.store(workers, std::memory_order_release);
  running_ = true;
  stopping_ = false;
  measured_from_ = MonotonicClock().Now();
  cpu_from_ = ProcessCpuNanos();
  for (size_t i = 0; i < workers; ++i) {
    const uint64_t seed = options_.seed * 1'000'003 + options_.process * 1009 + i;
    drivers_.push_back(std::make_unique<Driver>(
        host_.worker(i), workload_.types(),
        Driver::Options{.rate = options_.rate / static_cast<double>(workers), .seed = seed}));
    host_.worker(i).loop().Post([this, i, seed, driver = drivers_.back().get()] {
      driver->Start(workload_.MakeTerminals(host_.worker(i), PlaceOf(i), options_.terminals, seed),
                    [this, driver] {
                      if (!driver->failure().empty()) {
                        MutexLock lock(&mutex_);
                        if (failure_.empty()) failure_ = driver->failure();
                      }
                      drivers_running_.fetch_sub(1, std::memory_order_acq_rel);
                    });
    });
  }
  next_live_ = MonotonicClock().Now() + kSecond;
  Send("start");
}

void Agent::Stop() {
  stopping_ = true;
  measured_ns_ = MonotonicClock().Now() - measured_from_;
  cpu_ns_ = ProcessCpuNanos() - cpu_from_;
  for (size_t i = 0; i < drivers_.size(); ++i) {
    host_.worker(i).loop().Post([driver = drivers_[i].get()] { driver->Stop(); });
  }
}

void Agent::RequestLive() {
  live_requested_ = true;
  live_left_.store(drivers_.size(), std::memory_order_release);
  for (size_t i = 0; i < drivers_.size(); ++i) {
    host_.worker(i).loop().Post([this, driver = drivers_[i].get()] {
      const Measurement taken = driver->TakeInterval();
      {
        MutexLock lock(&mutex_);
        live_.Merge(taken);
      }
      live_left_.fetch_sub(1, std::memory_order_acq_rel);
    });
  }
}

void Agent::SendLive() {
  live_requested_ = false;
  Measurement live;
  {
    MutexLock lock(&mutex_);
    live = std::exchange(live_, {});
  }
  Send(absl::StrCat("live ", ToLine(live)));
}

absl::Status Agent::Corrupt() {
  txn::Node& node = host_.worker(0).node();
  bool done = false;
  node.regions.ForEach([&](storage::Region& region) {
    const cluster::RegionMapping* mapping = node.directory.Find(region.id());
    if (done || mapping == nullptr || mapping->primary().node == node.options.id) return;
    done = FlipBit(region, [](std::span<const std::byte>) { return true; });
  });
  return done ? absl::OkStatus() : absl::NotFoundError("this process has no backup with an object in it");
}

void Agent::Tick() {
  const uint64_t loaded = progress_.done.load(std::memory_order_relaxed);
  if (loaded != progress_sent_) {
    progress_sent_ = loaded;
    Send(absl::StrCat("progress ", loaded, " ", progress_.total.load(std::memory_order_relaxed)));
  }
  if (live_requested_ && live_left_.load(std::memory_order_acquire) == 0) SendLive();
  const bool drivers_ended = running_ && drivers_running_.load(std::memory_order_acquire) == 0;
  if (running_ && !stopping_) {
    if (MonotonicClock().Now() >= next_live_ && !live_requested_) {
      next_live_ += kSecond;
      RequestLive();
    }
    std::string failure;
    {
      MutexLock lock(&mutex_);
      failure = failure_;
    }
    if (!failure.empty() && !std::exchange(end_told_, true)) Send(absl::StrCat("ended ", Hex(failure)));
  }
  if (job_name_.empty() && stopping_ && drivers_ended && !live_requested_) {
    running_ = stopping_ = false;
    measurements_.assign(drivers_.size(), {});
    RunJob("stop", drivers_.size(), [this](size_t index, txn::Worker&) -> Task<absl::Status> {
      measurements_[index] = drivers_[index]->Measured();
      co_return absl::OkStatus();
    });
    return;
  }
  if (!job_name_.empty() && job_left_.load(std::memory_order_acquire) == 0) FinishJob();
}

}  // namespace furrow::bench
