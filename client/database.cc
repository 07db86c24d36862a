#include "client/database.h"

#include <atomic>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "client/member.h"
#include "index/catalog.h"

namespace furrow {
namespace {

constexpr Nanos kReasonTimeoutNs = 2 * kSecond;
constexpr Nanos kFoundedRetryNs = 20 * kMillisecond;

CommitResult Failed(absl::Status status) {
  CommitResult result;
  result.outcome = Outcome::kAborted;
  result.status = std::move(status);
  return result;
}

}  // namespace

class Database::Impl {
 public:
  Impl(DatabaseOptions options, std::unique_ptr<client::Member> member)
      : options_(std::move(options)),
        member_(std::move(member)),
        catalog_({.first_region = RegionId(1), .inner_cache_bytes = options_.inner_cache_bytes}) {}

  // Runs `make(worker)` on the next worker and waits for its result.
  template <class T>
  T Block(std::function<Task<T>(Worker&)> make) {
    struct Call {
      std::function<Task<T>(Worker&)> make;
      Mutex mutex;
      CondVar done;
      std::optional<T> result ABSL_GUARDED_BY(mutex);
    };
    FURROW_RETURN_IF_ERROR(Begin(/*blocking=*/true));
    auto call = std::make_shared<Call>();
    call->make = std::move(make);
    static constexpr auto kRun = [](std::shared_ptr<Call> c, Worker* worker) -> Task<void> {
      T result = co_await c->make(*worker);
      MutexLock lock(&c->mutex);
      c->result.emplace(std::move(result));
      c->done.Signal();
    };
    Worker& worker =
        member_->worker(next_worker_.fetch_add(1, std::memory_order_relaxed) % member_->workers());
    worker.loop().Post([call, &worker] { worker.loop().Spawn(kRun(call, &worker)); });
    MutexLock lock(&call->mutex);
    while (!call->result.has_value()) call->done.Wait(&call->mutex);
    End(/*blocking=*/true);
    T result = *std::move(call->result);
    if (!result.ok()) return Explain(result.status());
    return result;
  }

  // What failed because the cluster has ended says so. A peer's end is felt before its reason is known, which
  // comes soon.
  absl::Status Explain(absl::Status status) const {
    if (absl::IsUnavailable(status)) member_->WaitForEnd(MonotonicClock().Now() + kReasonTimeoutNs);
    absl::Status ended = member_->ended();
    return ended.ok() ? status : ended;
  }

  absl::Status Begin(bool blocking) {
    MutexLock lock(&mutex_);
    while (blocking && !closed_ && blocking_ >= options_.max_blocking_calls) changed_.Wait(&mutex_);
    if (closed_) return absl::UnavailableError("the database is closed");
    FURROW_RETURN_IF_ERROR(member_->ended());
    ++calls_;
    if (blocking) ++blocking_;
    return absl::OkStatus();
  }
  void End(bool blocking) {
    MutexLock lock(&mutex_);
    --calls_;
    if (blocking) --blocking_;
    changed_.SignalAll();
  }

  absl::Status Close() {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(closed_, true)) return absl::OkStatus();
      changed_.SignalAll();
      // Calls have deadlines of their own.
      while (calls_ > 0) changed_.Wait(&mutex_);
    }
    return member_->Stop();
  }

  const DatabaseOptions options_;
  std::unique_ptr<client::Member> member_;
  index::Catalog catalog_;

 private:
  std::atomic<size_t> next_worker_{0};
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t blocking_ ABSL_GUARDED_BY(mutex_) = 0;
};

absl::StatusOr<std::unique_ptr<Database>> Database::Open(DatabaseOptions options) {
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<client::Member> member, client::Member::Start(options));
  return std::unique_ptr<Database>(
      new Database(std::make_unique<Impl>(std::move(options), std::move(member))));
}

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Database::~Database() {
  absl::Status closed = Close();
  if (!closed.ok()) FURROW_LOG(WARNING) << "closing the database: " << closed;
}

absl::Status Database::Close() { return impl_->Close(); }

Task<CommitResult> Database::RunOn(Worker& worker, Body body, RunOptions options) {
  absl::Status alive = impl_->member_->ended();
  if (!alive.ok()) co_return Failed(alive);
  co_return co_await worker.Run(std::move(body), options);
}

CommitResult Database::Run(Body body, RunOptions options) {
  using Result = absl::StatusOr<CommitResult>;
  auto run = [this, &body, options](Worker& worker) -> Task<Result> {
    co_return co_await RunOn(worker, body, options);
  };
  Result result = impl_->Block<Result>(run);
  if (!result.ok()) return Failed(result.status());
  if (result->outcome == Outcome::kAborted) result->status = impl_->Explain(result->status);
  return *std::move(result);
}

absl::Status Database::Read(Body body, RunOptions options) {
  options.transaction.read_only = true;
  return Run(std::move(body), options).status;
}

absl::StatusOr<TablePointer> Database::OpenTable(std::string name) {
  using Result = absl::StatusOr<TablePointer>;
  auto open = [this, &name](Worker& worker) -> Task<Result> {
    const Nanos deadline = worker.loop().Now() + impl_->options_.join_timeout_ns;
    while (true) {
      Result table = co_await impl_->catalog_.Open(worker, name);
      if (!absl::IsUnavailable(table.status()) || worker.loop().Now() >= deadline || !health().ok())
        co_return table;
      co_await worker.loop().SleepFor(kFoundedRetryNs);
    }
  };
  return impl_->Block<Result>(open);
}

absl::StatusOr<TablePointer> Database::CreateTable(TableSpec spec) {
  using Result = absl::StatusOr<TablePointer>;
  auto create = [this, &spec](Worker& worker) -> Task<Result> {
    const Nanos deadline = worker.loop().Now() + impl_->options_.join_timeout_ns;
    while (true) {
      Result table = co_await impl_->catalog_.CreateTable(worker, spec);
      if (!absl::IsUnavailable(table.status()) || worker.loop().Now() >= deadline || !health().ok())
        co_return table;
      co_await worker.loop().SleepFor(kFoundedRetryNs);
    }
  };
  return impl_->Block<Result>(create);
}

absl::StatusOr<TablePointer> Database::OpenOrCreateTable(TableSpec spec) {
  absl::StatusOr<TablePointer> table = OpenTable(spec.name);
  if (!absl::IsNotFound(table.status())) return table;
  table = CreateTable(spec);
  return absl::IsAlreadyExists(table.status()) ? OpenTable(spec.name) : table;
}

absl::StatusOr<std::vector<std::string>> Database::ListTables() {
  using Result = absl::StatusOr<std::vector<std::string>>;
  return impl_->Block<Result>([this](Worker& worker) { return impl_->catalog_.ListTables(worker); });
}

size_t Database::workers() const { return impl_->member_->workers(); }

absl::Status Database::Spawn(size_t worker, std::function<Task<void>(Worker&)> task) {
  if (worker >= workers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no worker ", worker, ": this member has ", workers()));
  }
  FURROW_RETURN_IF_ERROR(impl_->Begin(/*blocking=*/false));
  static constexpr auto kRun = [](Impl* impl, std::function<Task<void>(Worker&)> body,
                                  Worker* on) -> Task<void> {
    co_await body(*on);
    impl->End(/*blocking=*/false);
  };
  Worker& on = impl_->member_->worker(worker);
  on.loop().Post(
      [impl = impl_.get(), task = std::move(task), &on] { on.loop().Spawn(kRun(impl, task, &on)); });
  return absl::OkStatus();
}

absl::Status Database::health() const { return impl_->member_->ended(); }
uint32_t Database::node_id() const { return impl_->member_->id().value(); }
const std::string& Database::cluster_id() const { return impl_->member_->cluster_id(); }

}  // namespace furrow
