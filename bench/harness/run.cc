#include "bench/harness/run.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "bench/harness/agent.h"

namespace furrow::bench {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int number) {
  // Nobody reads what is printed (head(1) has ended): the run ends, once.
  if (number == SIGPIPE) return interrupted.store(true);
  if (!interrupted.exchange(true)) return;
  (void)::signal(number, SIG_DFL);
  (void)::raise(number);  // delivered when this handler returns
}

constexpr Nanos kTick = 100 * kMillisecond;
constexpr Nanos kLogInterval = 5 * kSecond;

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(error),
                                             "; give --json a place that can be written"));
}

// Leaves nothing where there was nothing.
absl::Status TryToWrite(const std::string& path) {
  std::error_code ignored;
  const bool was_there = std::filesystem::exists(path, ignored);
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return CannotWrite(path, errno);
  (void)std::fclose(file);
  if (!was_there) std::filesystem::remove(path, ignored);
  return absl::OkStatus();
}

// The steps of one benchmark.
class Run {
 public:
  Run(const CommonFlags& flags, Console& console, const Clock& clock, Report* report)
      : flags_(flags), console_(console), clock_(clock), report_(report) {}

  absl::Status Execute(std::vector<std::string> agent_arguments) {
    FURROW_RETURN_IF_ERROR(StartProcesses(std::move(agent_arguments)));
    if (flags_.no_load) {
      FURROW_RETURN_IF_ERROR(Ask("open"));
    } else {
      FURROW_RETURN_IF_ERROR(Load());
    }
    if (flags_.seconds > 0) FURROW_RETURN_IF_ERROR(Measure());
    if (flags_.check) FURROW_RETURN_IF_ERROR(Check("run"));
    fleet_.Quit();
    return absl::OkStatus();
  }

 private:
  absl::Status StartProcesses(std::vector<std::string> arguments) {
    if (flags_.symmetric) {
      console_.Show(absl::StrCat("starting ", flags_.nodes, " processes"), 0);
    } else {
      console_.Show(absl::StrCat("joining the cluster ", flags_.cluster), 0);
    }
    for (uint64_t i = 0; i < flags_.processes(); ++i) {
      std::vector<std::string> mine = arguments;
      mine.insert(mine.end(), {"--agent-index", absl::StrCat(i)});
      FURROW_RETURN_IF_ERROR(fleet_.Spawn(std::move(mine)));
      // The first one founds the cluster that the others join.
      if (i == 0) FURROW_RETURN_IF_ERROR(AwaitReady(1));
    }
    FURROW_RETURN_IF_ERROR(AwaitReady(flags_.processes()));
    console_.Settle(/*erase=*/true);
    return absl::OkStatus();
  }

  // Each process says once "ready REPLICAS NODES DURABILITY FABRIC": what it found.
  absl::Status AwaitReady(size_t count) {
    if (count <= ready_) return absl::OkStatus();
    return WaitUntil([&] { return ready_ >= count; });
  }

  absl::Status WaitUntil(const std::function<bool()>& done) {
    while (!done()) {
      FURROW_RETURN_IF_ERROR(
          fleet_.Poll(kTick, [this](size_t p, std::string_view line) { OnLine(p, line); }));
      if (Interrupted()) return absl::CancelledError("interrupted");
    }
    return absl::OkStatus();
  }

  void OnLine(size_t process, std::string_view line) {
    const std::string_view word = FirstWord(line);
    const std::vector<std::string> rest = absl::StrSplit(Sv(AfterFirstWord(line)), ' ', absl::SkipEmpty());
    if (word == "ready" && rest.size() == 4) {
      ++ready_;
      if (process != 0) return;
      (void)absl::SimpleAtoi(rest[0], &report_->replicas);
      (void)absl::SimpleAtoi(rest[1], &report_->nodes);
      report_->durability = rest[2];
      report_->fabric = rest[3];
    } else if (word == "progress" && rest.size() == 2) {
      progress_.resize(fleet_.size());
      (void)absl::SimpleAtoi(rest[0], &progress_[process].first);
      (void)absl::SimpleAtoi(rest[1], &progress_[process].second);
    } else if (word == "live") {
      ++live_count_;
      if (auto live = FromLine(AfterFirstWord(line)); live.ok()) live_.Merge(*live);
    } else if (word == "huge") {
      report_->huge_pages = true;
    } else if (word == "ended") {
      ended_ = true;
    } else if (word == "stop") {
      auto measured = FromLine(AfterFirstWord(line));
      if (measured.ok()) report_->measured.Merge(*measured);
      garbled_.Update(measured.status());
    } else if (word == "check" && rest.size() >= 2) {
      const std::string detail = rest.size() > 2 ? absl::HexStringToBytes(rest[2]) : "";
      report_->checks.push_back({rest[0], rest[1] == "pass", detail});
    }
  }

  absl::Status AskOne(size_t process, std::string_view what) {
    FURROW_RETURN_IF_ERROR(fleet_.Send(process, what));
    return AwaitAnswer(what, process + 1, process);
  }
  absl::Status Ask(std::string_view what) {
    FURROW_RETURN_IF_ERROR(fleet_.Broadcast(what));
    return AwaitAnswer(what, fleet_.size(), 0);
  }
  // Waits for the answers of processes [first, last).
  absl::Status AwaitAnswer(std::string_view what, size_t last, size_t first) {
    const std::string_view answer = FirstWord(what);
    size_t missing = last - first;
    while (missing > 0) {
      FURROW_RETURN_IF_ERROR(fleet_.Poll(kTick, [&](size_t process, std::string_view line) {
        const bool final_line = answer == "stop" ? FirstWord(line) == answer : line == answer;
        if (final_line && process >= first && process < last) --missing;
        OnLine(process, line);
      }));
      if (on_tick_) on_tick_();
      if (Interrupted() && !in_good_order_) return absl::CancelledError("interrupted");
    }
    return absl::OkStatus();
  }

  absl::Status Load() {
    const Nanos start = clock_.Now();
    on_tick_ = [this, start] {
      uint64_t done = 0;
      uint64_t total = 0;
      for (const auto& [d, t] : progress_) {
        done += d;
        total += t;
      }
      const Nanos elapsed = clock_.Now() - start;
      console_.Show(total == 0 ? absl::StrCat("making tables  ", elapsed / kSecond, " s")
                               : ProgressBar("loading", done, total, elapsed),
                    kLogInterval);
    };
    absl::Status loaded = AskOne(0, "create");
    if (loaded.ok()) loaded = Ask("open");
    if (loaded.ok()) loaded = Ask("load");
    if (absl::IsCancelled(loaded) && !flags_.symmetric) {
      return absl::CancelledError(
          "the load was interrupted, and the data is not whole: load it anew with --reload");
    }
    FURROW_RETURN_IF_ERROR(loaded);
    on_tick_ = nullptr;
    report_->load_seconds = static_cast<double>(clock_.Now() - start) / kSecond;
    uint64_t rows = 0;
    for (const auto& [d, t] : progress_) rows += d;
    console_.Settle(/*erase=*/true);
    console_.Print(absl::StrCat("loaded ", WithCommas(rows), " rows in ",
                                FormatNanos(static_cast<double>(clock_.Now() - start))));
    if (!flags_.check) return absl::OkStatus();
    return Check("load");
  }

  // Shows what the processes report until `until`, or until the run ends early; `note` at the end of each
  // line.
  absl::Status ShowLive(Nanos start, Nanos until, std::string_view note) {
    while (!ended_ && !Interrupted()) {
      const Nanos now = clock_.Now();
      if (now >= until) break;
      FURROW_RETURN_IF_ERROR(fleet_.Poll(std::min(kTick, until - now),
                                         [this](size_t p, std::string_view line) { OnLine(p, line); }));
      // One line when each process has told of its last second.
      if (live_count_ < fleet_.size()) continue;
      const std::string_view words = report_->headline_type == "new_order" ? "new orders" : "";
      const std::string line = LiveLine(clock_.Now() - start, 1.0, live_, report_->headline_type, words);
      console_.Show(absl::StrCat(line, Sv(note)), kSecond / 2);
      live_ = {};
      live_count_ = 0;
    }
    return absl::OkStatus();
  }

  absl::Status Measure() {
    in_good_order_ = true;
    FURROW_RETURN_IF_ERROR(Ask("start"));
    const Nanos start = clock_.Now();
    if (flags_.warmup > 0) {
      FURROW_RETURN_IF_ERROR(
          ShowLive(start, start + static_cast<Nanos>(flags_.warmup) * kSecond, "  (warm-up, not counted)"));
    }
    if (!ended_ && !Interrupted()) FURROW_RETURN_IF_ERROR(Ask("measure"));
    const Nanos measured = clock_.Now();
    FURROW_RETURN_IF_ERROR(ShowLive(start, measured + static_cast<Nanos>(flags_.seconds) * kSecond, ""));
    FURROW_RETURN_IF_ERROR(Ask("stop"));
    FURROW_RETURN_IF_ERROR(garbled_);
    if (Interrupted() && report_->measured.ended_early.empty()) report_->measured.ended_early = "interrupted";
    console_.Settle(/*erase=*/true);
    return absl::OkStatus();
  }

  absl::Status Check(std::string_view when) {
    console_.Show(absl::StrCat("checking after the ", Sv(when)), 0);
    in_good_order_ = true;  // an interrupt ends the run; its result is still checked
    FURROW_RETURN_IF_ERROR(Ask("drain"));
    if (flags_.corrupt && when == "run") FURROW_RETURN_IF_ERROR(AskOne(fleet_.size() - 1, "corrupt"));
    FURROW_RETURN_IF_ERROR(AskOne(0, absl::StrCat("check ", Sv(when))));
    in_good_order_ = false;
    console_.Settle(/*erase=*/true);
    return absl::OkStatus();
  }

  const CommonFlags& flags_;
  Console& console_;
  const Clock& clock_;
  Report* const report_;
  Fleet fleet_;
  size_t ready_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> progress_;  // of each process: done, total
  Measurement live_;
  size_t live_count_ = 0;  // of lines merged into live_
  absl::Status garbled_;   // a measurement that could not be read
  bool ended_ = false;
  bool in_good_order_ = false;  // an interrupt does not give up what is asked for now
  std::function<void()> on_tick_;
};

}  // namespace

void CommonFlags::AddTo(FlagSet* f) {
  f->AddText("cluster", &cluster,
             "run as a compute member of this cluster: its directory, or host:port of a member");
  f->AddText("secret-file", &secret_file,
             "the cluster's secret; default \"secret\" in its directory. An address needs it");
  f->AddSwitch("symmetric", &symmetric, "run in storage processes of its own, with the terminals inside");
  f->AddNumber("nodes", &nodes, 1, 32, "storage processes of --symmetric");
  f->AddNumber("replicas", &replicas, 1, 8, "copies of each region, with --symmetric");
  f->AddNumber("workers", &workers, 1, 64, "worker threads per process");
  f->AddNumber("terminals", &terminals, 0, 10'000,
               "transactions in flight per worker; 0: the workload's choice");
  f->AddNumber("seconds", &seconds, 0, 86'400, "length of the measurement; 0: load only");
  f->AddNumber("warmup", &warmup, 0, 3600, "seconds before the measurement");
  f->AddNumber("rate", &rate, 0, 100'000'000, "transactions wanted per second in all; 0: as fast as it goes");
  f->AddText("durability", &durability, "of the cluster of --symmetric");
  f->AddText("fabric", &fabric,
             "auto, shm or verbs; with --cluster the cluster's counts, and another one is refused");
  f->AddText("addresses", &addresses,
             "IP,...: where the processes listen, the first again after the last; default 127.0.0.1");
  f->AddSwitch("huge-pages", &huge_pages, "ask for huge pages, with --symmetric");
  f->AddNumber("memory", &memory_mb, 0, 16'000'000,
               "MB per storage process of --symmetric; 0: a share of /dev/shm");
  f->AddNumber("region-size", &region_mb, 2, 2048, "MB per region of --symmetric");
  f->AddSwitch("check", &check, "check replicas and consistency after the load and after the run");
  f->AddSwitch("no-load", &no_load, "use the data that the cluster holds already");
  f->AddSwitch("reload", &reload, "drop what an earlier load has left in the cluster, and load anew");
  f->AddText("json", &json, "write the result to this file");
  f->AddNumber("seed", &seed, 0, UINT64_MAX, "of all random choices; 0: a new one");
  f->AddText("dir", &dir, "directory of the processes of --symmetric; removed at the end");
  f->AddSwitch("corrupt", &corrupt, "damage a row before the check");
  f->AddNumber("agent-fd", &agent_fd, 0, 1 << 20, "");
  f->AddNumber("agent-index", &agent_index, 0, 1 << 20, "");
  for (const char* hidden : {"corrupt", "agent-fd", "agent-index", "dir"}) f->Hide(hidden);
}

absl::Status CommonFlags::Validate() const {
  if (symmetric == !cluster.empty()) {
    return absl::InvalidArgumentError(
        "say where to run: --cluster with a cluster's directory or address, or --symmetric, and not both");
  }
  if (symmetric && no_load) {
    return absl::InvalidArgumentError("--symmetric starts an empty cluster: leave --no-load out");
  }
  if (reload && (no_load || symmetric)) {
    return absl::InvalidArgumentError(absl::StrCat("--reload does not go with ",
                                                   no_load ? "--no-load" : "--symmetric",
                                                   ": it replaces the data that a cluster holds"));
  }
  if (symmetric && replicas > nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--replicas ", replicas, " needs at least as many --nodes, not ", nodes));
  }
  if (durability != "replicated") {
    return absl::InvalidArgumentError(
        absl::StrCat("--durability ", durability, " is not there yet: use --durability replicated"));
  }
  if (seconds == 0 && no_load && !check) {
    return absl::InvalidArgumentError("nothing to do: --seconds 0 with --no-load and without --check");
  }
  return json.empty() ? absl::OkStatus() : TryToWrite(json);
}

client::OptionNames CommonFlags::option_names() const {
  // A member that it joins has flags of its own.
  if (!symmetric) {
    return {{"cluster", "--cluster"},
            {"fabric", "--fabric"},
            {"listen", "--addresses"},
            {"secret_file", "--secret-file"},
            {"workers", "--workers"},
            {"memory_bytes", "furrow node's --memory"},
            {"lease_ns", "furrow node's --lease"}};
  }
  return {{"memory_bytes", "--memory"},      {"fabric", "--fabric"},     {"listen", "--addresses"},
          {"region_bytes", "--region-size"}, {"replicas", "--replicas"}, {"workers", "--workers"}};
}

absl::Status RunBenchmark(const CommonFlags& flags, std::vector<std::string> agent_arguments,
                          Console& console, const Clock& clock, Report* report) {
  Run run(flags, console, clock, report);
  const absl::Status status = run.Execute(std::move(agent_arguments));
  console.Settle();
  return status;
}

absl::Status Deliver(const CommonFlags& flags, const Report& report, Console& console) {
  if (report.measured.measured_ns > 0 || !report.checks.empty()) console.Print(report.Table());
  if (!flags.json.empty()) {
    std::FILE* file = std::fopen(flags.json.c_str(), "w");
    const std::string text = report.Json();
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file == nullptr || std::fclose(file) != 0 || !written) {
      return CannotWrite(flags.json, errno);
    }
  }
  if (!report.checks_passed()) return absl::DataLossError("consistency checks failed; see the table");
  return absl::OkStatus();
}

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) (void)::sigaction(number, &action, nullptr);
}

bool Interrupted() { return interrupted.load(); }

}  // namespace furrow::bench
