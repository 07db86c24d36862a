#include "client/database.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "client/member.h"
#include "client/worker_calls.h"
#include "index/catalog.h"

namespace furrow {
namespace {

constexpr Nanos kFoundedRetryNs = 20 * kMillisecond;
constexpr Nanos kReasonTimeoutNs = 2 * kSecond;
// The callers of what was destroyed have been released; this is for their last steps.
constexpr Nanos kReleaseTimeoutNs = 5 * kSecond;

void LogException(std::exception_ptr exception) {
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const std::exception& e) {
    FURROW_LOG(ERROR) << "an exception left a spawned coroutine: " << e.what();
  } catch (...) {
    FURROW_LOG(ERROR) << "an exception left a spawned coroutine";
  }
}

absl::Status OnWorker(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " would block a worker: on a worker use the calls that are coroutines"));
}

absl::Status WithWhere(const absl::Status& status, const std::string& where) {
  return absl::Status(status.code(), absl::StrCat("cluster ", where, ": ", status.message()));
}

std::vector<Worker*> WorkersOf(client::Member& member) {
  std::vector<Worker*> workers;
  for (size_t i = 0; i < member.workers(); ++i) workers.push_back(&member.worker(i));
  return workers;
}

}  // namespace

class Database::Impl {
 public:
  Impl(DatabaseOptions options, std::string where, std::unique_ptr<client::Member> member)
      : where_(std::move(where)),
        join_timeout_ns_(options.join_timeout_ns),
        close_timeout_ns_(options.close_timeout_ns),
        catalog_({.first_region = RegionId(1), .inner_cache_bytes = options.inner_cache_bytes}),
        calls_(WorkersOf(*member), {.max_in_flight = std::max(options.max_in_flight, 1u),
                                    .on_exception = std::move(options.on_exception)}),
        member_(std::move(member)) {}

  absl::Status Health() const {
    absl::Status ended = member_->ended();
    return ended.ok() ? ended : WithWhere(ended, where_);
  }

  // What failed because the cluster has ended says so. A peer's end is felt before its reason is known, which
  // comes soon; a worker does not wait for it.
  absl::Status Explain(absl::Status status) const {
    if (!absl::IsUnavailable(status) && !absl::IsUnknown(status) && !absl::IsDeadlineExceeded(status)) {
      return status;
    }
    if (absl::IsUnavailable(status) && EventLoop::Current() == nullptr) {
      member_->WaitForEnd(MonotonicClock().Now() + kReasonTimeoutNs);
    }
    absl::Status ended = member_->ended();
    if (ended.ok() || absl::StrContains(status.message(), ended.message())) return status;
    return absl::Status(status.code(),
                        absl::StrCat("cluster ", where_, ": ", status.message(), "; ", ended.message()));
  }

  absl::StatusOr<size_t> Choose(int worker) {
    if (worker == kAnyWorker) return calls_.Next();
    if (worker >= 0 && static_cast<size_t>(worker) < calls_.size()) return static_cast<size_t>(worker);
    return absl::InvalidArgumentError(
        absl::StrCat("there is no worker ", worker, ": this member has ", calls_.size()));
  }

  absl::Status Call(Coroutine coroutine, int worker, Nanos deadline_ns) {
    if (EventLoop::Current() != nullptr) return OnWorker("this call");
    FURROW_RETURN_IF_ERROR(Health());
    FURROW_ASSIGN_OR_RETURN(size_t at, Choose(worker));
    return calls_.Wait(at, std::move(coroutine), MonotonicClock().Now() + deadline_ns);
  }

  // Runs `make(worker)` on the next worker and waits for its result, a StatusOr.
  template <class Make>
  auto Block(Nanos deadline_ns, Make make) {
    using Awaiter = decltype(make(std::declval<Worker&>()).operator co_await());
    using Result = std::decay_t<decltype(std::declval<Awaiter>().await_resume())>;
    Result result = absl::UnknownError("the call was destroyed before its end");
    absl::Status called = Call(
        [&](Worker& worker) -> Task<absl::Status> {
          result = co_await make(worker);
          co_return absl::OkStatus();
        },
        kAnyWorker, deadline_ns);
    if (!called.ok()) return Result(called);
    if (!result.ok()) result = Explain(result.status());
    return result;
  }

  // A catalog is there as soon as the cluster has its storage members; a member that comes earlier waits.
  template <class Make>
  auto WhenFounded(Worker& worker, Make make) -> decltype(make()) {
    const Nanos deadline = worker.loop().Now() + join_timeout_ns_;
    while (true) {
      auto result = co_await make();
      if (!absl::IsUnavailable(result.status()) || worker.loop().Now() >= deadline || !Health().ok()) {
        if (!result.ok()) result = Explain(result.status());
        co_return result;
      }
      co_await worker.loop().SleepFor(kFoundedRetryNs);
    }
  }

  absl::Status Close() {
    if (EventLoop::Current() != nullptr) return OnWorker("Database::Close()");
    if (std::exchange(stopped_, true)) return absl::OkStatus();
    calls_.Close();
    const Clock& clock = MonotonicClock();
    if (!calls_.Drain(clock.Now() + close_timeout_ns_)) {
      FURROW_LOG(WARNING) << "cluster " << where_ << ": leaving although calls are still running";
    }
    absl::Status stopped = member_->Stop();
    calls_.DestroyQueued();
    calls_.Drain(clock.Now() + kReleaseTimeoutNs);
    return stopped.ok() ? stopped : WithWhere(stopped, where_);
  }

  const std::string where_;  // the cluster, as messages name it
  const Nanos join_timeout_ns_;
  const Nanos close_timeout_ns_;
  index::Catalog catalog_;
  client::WorkerCalls calls_;
  bool stopped_ = false;
  // Dies first: what its workers still run refers to the others.
  std::unique_ptr<client::Member> member_;
};

absl::StatusOr<std::unique_ptr<Database>> Database::Open(DatabaseOptions options) {
  if (EventLoop::Current() != nullptr) return OnWorker("Database::Open()");
  if (!options.on_exception) options.on_exception = LogException;
  std::string where = options.cluster.empty() ? options.directory : options.cluster;
  absl::StatusOr<std::unique_ptr<client::Member>> member = absl::UnknownError("");
  try {
    member = client::Member::Start(options);
  } catch (const std::exception& e) {  // no thread, no memory
    return absl::ResourceExhaustedError(absl::StrCat("cluster ", where, ": cannot join: ", e.what()));
  }
  if (!member.ok()) return where.empty() ? member.status() : WithWhere(member.status(), where);
  return std::unique_ptr<Database>(
      new Database(std::make_unique<Impl>(std::move(options), std::move(where), *std::move(member))));
}

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Database::~Database() {
  absl::Status closed = Close();
  if (closed.ok()) return;
  FURROW_LOG(WARNING) << "closing the database: " << closed;
  // A thread cannot wait for its own end; what it runs on must stay.
  if (EventLoop::Current() != nullptr) static_cast<void>(impl_.release());
}

absl::Status Database::Close() { return impl_->Close(); }

Task<CommitResult> Database::RunOn(Worker& worker, Body body, RunOptions options) {
  CommitResult result = co_await worker.Run(std::move(body), options);
  if (!result.status.ok()) result.status = impl_->Explain(std::move(result.status));
  co_return result;
}

CommitResult Database::Run(Body body, RunOptions options, int worker) {
  const Nanos deadline = MonotonicClock().Now() + options.deadline_ns;
  CommitResult result;
  bool finished = false;
  absl::Status called = impl_->Call(
      [&](Worker& here) -> Task<absl::Status> {
        // Whatever ends this before RunOn() does leaves the outcome open.
        result.outcome = Outcome::kUnknown;
        RunOptions rest = options;
        rest.deadline_ns = std::max<Nanos>(deadline - here.loop().Now(), 1);
        result = co_await RunOn(here, std::move(body), rest);
        finished = true;
        co_return absl::OkStatus();
      },
      worker, options.deadline_ns);
  result.status = finished ? impl_->Explain(std::move(result.status)) : std::move(called);
  return result;
}

absl::Status Database::Read(Body body, RunOptions options) {
  options.transaction.read_only = true;
  return Run(std::move(body), options).status;
}

absl::Status Database::Call(Coroutine coroutine, int worker, Nanos deadline_ns) {
  return impl_->Call(std::move(coroutine), worker, deadline_ns);
}

Task<absl::StatusOr<TablePointer>> Database::OpenTableOn(Worker& worker, std::string name) {
  return impl_->WhenFounded(worker, [impl = impl_.get(), &worker, name = std::move(name)] {
    return impl->catalog_.Open(worker, name);
  });
}

Task<absl::StatusOr<TablePointer>> Database::CreateTableOn(Worker& worker, TableSpec spec) {
  return impl_->WhenFounded(worker, [impl = impl_.get(), &worker, spec = std::move(spec)] {
    return impl->catalog_.CreateTable(worker, spec);
  });
}

Task<absl::Status> Database::DropTableOn(Worker& worker, std::string name) {
  absl::Status dropped = co_await impl_->catalog_.DropTable(worker, std::move(name));
  co_return dropped.ok() ? dropped : impl_->Explain(std::move(dropped));
}

Task<absl::StatusOr<std::vector<std::string>>> Database::ListTablesOn(Worker& worker) {
  return impl_->WhenFounded(worker,
                            [impl = impl_.get(), &worker] { return impl->catalog_.ListTables(worker); });
}

absl::StatusOr<TablePointer> Database::OpenTable(std::string name, Nanos deadline_ns) {
  return impl_->Block(deadline_ns, [&](Worker& worker) { return OpenTableOn(worker, name); });
}

absl::StatusOr<TablePointer> Database::CreateTable(TableSpec spec, Nanos deadline_ns) {
  return impl_->Block(deadline_ns, [&](Worker& worker) { return CreateTableOn(worker, spec); });
}

absl::Status Database::DropTable(std::string name, Nanos deadline_ns) {
  return Call([&](Worker& worker) { return DropTableOn(worker, name); }, kAnyWorker, deadline_ns);
}

absl::StatusOr<TablePointer> Database::OpenOrCreateTable(TableSpec spec) {
  absl::StatusOr<TablePointer> table = OpenTable(spec.name);
  if (absl::IsNotFound(table.status())) {
    table = CreateTable(spec);
    if (absl::IsAlreadyExists(table.status())) table = OpenTable(spec.name);
  }
  if (!table.ok()) return table;
  const std::string difference = index::Difference((*table)->spec(), spec);
  if (difference.empty()) return table;
  return absl::FailedPreconditionError(
      absl::StrCat("table \"", spec.name, "\" is there and has another form: its ", difference,
                   "; open it with OpenTable(), or give the one that is wanted another name"));
}

absl::StatusOr<std::vector<std::string>> Database::ListTables(Nanos deadline_ns) {
  return impl_->Block(deadline_ns, [&](Worker& worker) { return ListTablesOn(worker); });
}

absl::Status Database::Spawn(size_t worker, std::function<Task<void>(Worker&)> task) {
  FURROW_RETURN_IF_ERROR(impl_->Health());
  FURROW_ASSIGN_OR_RETURN(size_t at, impl_->Choose(static_cast<int>(worker)));
  return impl_->calls_.Start(at, [task = std::move(task)](Worker& here) -> Task<absl::Status> {
    co_await task(here);
    co_return absl::OkStatus();
  });
}

size_t Database::workers() const { return impl_->calls_.size(); }
Worker& Database::worker(size_t i) { return impl_->member_->worker(i); }
absl::Status Database::health() const { return impl_->Health(); }
uint32_t Database::node_id() const { return impl_->member_->id().value(); }
const std::string& Database::cluster_id() const { return impl_->member_->cluster_id(); }

}  // namespace furrow
