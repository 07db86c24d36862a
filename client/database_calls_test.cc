// How Database hands calls to workers, against a cluster of three storage members in this process.
#include "client/database.h"

#include <stdlib.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "base/thread.h"
#include "client/member.h"
#include "client/worker_calls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow {
namespace {

using client::Member;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(Sv(status.message())); }

std::string Encode(uint64_t number) { return std::to_string(number); }

TableSpec Spec(const std::string& name) {
  TableSpec spec;
  spec.name = name;
  spec.max_key_bytes = 8;
  return spec;
}

uint64_t Decode(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

class DatabaseCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/furrow-client-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    for (uint32_t id = 1; id <= 3; ++id) {
      MemberOptions options;
      options.storage = true;
      options.id = id;
      options.directory = absl::StrCat(root_, "/n", id);
      options.cluster_directory = id == 1 ? root_ : "";
      options.cluster = id == 1 ? "" : root_;
      Small(&options);
      options.memory_bytes = 96 << 20;
      options.old_version_bytes = 4 << 20;
      options.region_bytes = 4 << 20;
      std::filesystem::create_directory(options.directory);
      absl::StatusOr<std::unique_ptr<Member>> member = Member::Start(options);
      ASSERT_TRUE(member.ok()) << member.status();
      members_.push_back(*std::move(member));
    }
  }

  void TearDown() override {
    StopCluster();
    std::filesystem::remove_all(root_);
  }

  void StopCluster() {
    for (auto& member : members_) EXPECT_TRUE(member->Stop().ok());
    members_.clear();
  }

  void Small(MemberOptions* options) {
    options->socket_directory = root_ + "/s";
    options->log_ring_bytes = 256 << 10;
    options->message_ring_bytes = 64 << 10;
  }

  DatabaseOptions Options(uint16_t workers = 1) {
    DatabaseOptions options;
    options.cluster = root_;
    options.workers = workers;
    options.memory_bytes = 64 << 20;
    Small(&options);
    return options;
  }

  std::unique_ptr<Database> OpenDatabase(DatabaseOptions options) {
    absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(std::move(options));
    EXPECT_TRUE(database.ok()) << database.status();
    return database.ok() ? *std::move(database) : nullptr;
  }

  std::string root_;
  std::vector<std::unique_ptr<Member>> members_;
};

TablePointer MakeCounter(Database& database, const std::string& name) {
  absl::StatusOr<TablePointer> table = database.CreateTable(Spec(name));
  EXPECT_TRUE(table.ok()) << table.status();
  if (!table.ok()) return nullptr;
  CommitResult inserted = database.Run([&](Transaction& tx) -> Task<absl::Status> {
    co_return (co_await (*table)->Insert(tx, "n", Encode(0))).status();
  });
  EXPECT_TRUE(inserted.committed()) << inserted.status;
  return *table;
}

// A body that adds one to the counter.
Database::Body Increment(TablePointer table) {
  return [table](Transaction& tx) -> Task<absl::Status> {
    RowResult row = co_await table->Get(tx, "n");
    if (!row.ok()) co_return row.status();
    co_return (co_await table->Update(tx, *row, Encode(Decode(row->value) + 1))).status();
  };
}

Task<void> ThrowLogicError(Worker&) {
  throw std::logic_error("from a spawned coroutine");
  co_return;
}

uint64_t ReadCounter(Database& database, const TablePointer& table) {
  uint64_t value = 0;
  absl::Status read = database.Read([&](Transaction& tx) -> Task<absl::Status> {
    RowResult row = co_await table->Get(tx, "n");
    if (row.ok()) value = Decode(row->value);
    co_return row.status();
  });
  EXPECT_TRUE(read.ok()) << read;
  return value;
}

TEST_F(DatabaseCallsTest, TablesAreCreatedListedAndOpenedByOthers) {
  std::unique_ptr<Database> one = OpenDatabase(Options());
  std::unique_ptr<Database> other = OpenDatabase(Options());
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->cluster_id(), members_[0]->cluster_id());
  MakeCounter(*one, "b");
  MakeCounter(*one, "a");
  EXPECT_TRUE(absl::IsAlreadyExists(one->CreateTable(Spec("a")).status()));
  EXPECT_TRUE(absl::IsNotFound(other->OpenTable("c").status()));
  absl::StatusOr<std::vector<std::string>> names = other->ListTables();
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("a", "b"));
  absl::StatusOr<TablePointer> opened = other->OpenTable("a");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(ReadCounter(*other, *opened), 0u);
  EXPECT_TRUE(one->Close().ok());
  EXPECT_TRUE(one->Close().ok());
  EXPECT_TRUE(absl::IsUnavailable(one->OpenTable("a").status()));
  EXPECT_TRUE(other->Run(Increment(*opened)).committed());  // one's leaving disturbs nobody
}

TEST_F(DatabaseCallsTest, BlockingCallsOfManyThreadsLoseNoUpdate) {
  DatabaseOptions options = Options(2);
  options.max_in_flight = 2;  // callers have to wait for each other
  std::unique_ptr<Database> database = OpenDatabase(std::move(options));
  ASSERT_NE(database, nullptr);
  TablePointer table = MakeCounter(*database, "counter");
  constexpr int kThreads = 6;
  constexpr int kEach = 20;
  RunOptions patient;
  patient.deadline_ns = 60 * kSecond;
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back(ThreadOptions{.name = "caller"}, [&] {
        for (int i = 0; i < kEach; ++i) {
          CommitResult result = database->Run(Increment(table), patient);
          EXPECT_TRUE(result.committed()) << result.status;
        }
      });
    }
  }
  EXPECT_EQ(ReadCounter(*database, table), uint64_t{kThreads} * kEach);
}

TEST_F(DatabaseCallsTest, CoroutinesRunOnWorkersAndMayCallEachOther) {
  std::unique_ptr<Database> database = OpenDatabase(Options(2));
  ASSERT_NE(database, nullptr);
  absl::Status status = database->Call(
      [&](Worker& worker) -> Task<absl::Status> {
        EXPECT_EQ(&worker, &database->worker(1));
        absl::StatusOr<TablePointer> table = co_await database->CreateTableOn(worker, Spec("t"));
        if (!table.ok()) co_return table.status();
        CommitResult result = co_await database->RunOn(worker, [&](Transaction& tx) -> Task<absl::Status> {
          co_return (co_await (*table)->Insert(tx, "n", Encode(41))).status();
        });
        if (!result.committed()) co_return result.status;
        result = co_await database->RunOn(worker, Increment(*table));
        if (!result.committed()) co_return result.status;
        table = co_await database->OpenTableOn(worker, "t");
        absl::StatusOr<std::vector<std::string>> names = co_await database->ListTablesOn(worker);
        EXPECT_TRUE(names.ok() && names->size() == 1);
        // Blocking forms would wait for themselves.
        EXPECT_TRUE(absl::IsFailedPrecondition(database->Run(Increment(*table)).status));
        EXPECT_TRUE(absl::IsFailedPrecondition(database->Close()));
        co_return absl::AlreadyExistsError("the body's own error comes back");
      },
      /*worker=*/1);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  absl::StatusOr<TablePointer> table = database->OpenTable("t");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(ReadCounter(*database, *table), 42u);
  EXPECT_TRUE(absl::IsInvalidArgument(database->Spawn(7, nullptr)));
}

TEST_F(DatabaseCallsTest, ExceptionOfABodyComesBackAndItsTransactionIsAborted) {
  DatabaseOptions options = Options();
  std::atomic<bool> told = false;
  options.on_exception = [&](std::exception_ptr exception) {
    EXPECT_THROW(std::rethrow_exception(exception), std::logic_error);
    told = true;
  };
  std::unique_ptr<Database> database = OpenDatabase(std::move(options));
  ASSERT_NE(database, nullptr);
  TablePointer table = MakeCounter(*database, "counter");
  Database::Body body = [&](Transaction& tx) -> Task<absl::Status> {
    absl::Status status = co_await Increment(table)(tx);
    if (!status.ok()) co_return status;
    throw std::runtime_error("from the body");
  };
  EXPECT_THROW(database->Run(body), std::runtime_error);
  EXPECT_EQ(ReadCounter(*database, table), 0u);
  absl::Status caught = database->Call([&](Worker& worker) -> Task<absl::Status> {
    bool thrown = false;
    try {
      CommitResult result = co_await database->RunOn(worker, body);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    co_return thrown ? absl::OkStatus() : absl::InternalError("nothing came");
  });
  EXPECT_TRUE(caught.ok()) << caught;
  ASSERT_TRUE(database->Spawn(0, &ThrowLogicError).ok());
  EXPECT_TRUE(database->Close().ok());  // waits for it
  EXPECT_TRUE(told);
}

TEST_F(DatabaseCallsTest, ClosingWithWorkInFlightReleasesItsCallersAndDestroysIt) {
  DatabaseOptions options = Options();
  options.close_timeout_ns = 50 * kMillisecond;
  options.max_in_flight = 1;
  std::unique_ptr<Database> database = OpenDatabase(std::move(options));
  ASSERT_NE(database, nullptr);
  std::atomic<bool> running = false;
  auto witness = std::make_shared<int>(0);
  absl::Status stuck;
  Thread caller({.name = "caller"}, [&] {
    auto held = witness;
    stuck = database->Call([&, held](Worker& worker) -> Task<absl::Status> {
      running = true;
      running.notify_all();
      co_await worker.loop().SleepFor(3600 * kSecond);
      co_return absl::OkStatus();
    });
  });
  running.wait(false);
  // A second one waits for its turn, and gives up at its deadline without having run.
  bool ran = false;
  absl::Status late = database->Call(
      [&](Worker&) -> Task<absl::Status> {
        ran = true;
        co_return absl::OkStatus();
      },
      Database::kAnyWorker, 10 * kMillisecond);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_FALSE(ran);
  EXPECT_TRUE(absl::IsResourceExhausted(database->Spawn(0, [](Worker&) -> Task<void> { co_return; })));
  EXPECT_TRUE(database->Close().ok());
  caller.Join();
  EXPECT_TRUE(absl::IsUnknown(stuck)) << stuck;
  EXPECT_EQ(witness.use_count(), 1);
}

TEST_F(DatabaseCallsTest, CallsThatNobodyWaitsForDoNotPileUp) {
  DatabaseOptions options = Options();
  options.max_in_flight = 1;
  std::unique_ptr<Database> database = OpenDatabase(std::move(options));
  ASSERT_NE(database, nullptr);
  std::atomic<bool> go_on = false;
  ASSERT_TRUE(database
                  ->Spawn(0,
                          [&](Worker&) -> Task<void> {
                            go_on.wait(false);  // as code that blocks a worker does
                            co_return;
                          })
                  .ok());
  const Database::Coroutine nothing = [](Worker&) -> Task<absl::Status> { co_return absl::OkStatus(); };
  uint32_t given_up = 0;
  absl::Status last;
  while (given_up <= client::WorkerCalls::kMaxWaiting) {
    last = database->Call(nothing, 0, 0);
    if (!absl::IsDeadlineExceeded(last)) break;
    ++given_up;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(last)) << last;
  EXPECT_THAT(Message(last), HasSubstr("nothing has happened"));
  EXPECT_EQ(given_up, client::WorkerCalls::kMaxWaiting);
  go_on = true;
  go_on.notify_all();
  EXPECT_TRUE(database->Close().ok());
}

TEST_F(DatabaseCallsTest, CallsSayWhyAClusterHasEnded) {
  DatabaseOptions options = Options();
  std::atomic<bool> ended = false;
  options.on_end = [&](bool, const std::string&) {
    ended = true;
    ended.notify_all();
  };
  std::unique_ptr<Database> database = OpenDatabase(std::move(options));
  ASSERT_NE(database, nullptr);
  TablePointer table = MakeCounter(*database, "counter");
  EXPECT_TRUE(database->health().ok());
  StopCluster();
  ended.wait(false);
  CommitResult result = database->Run(Increment(table));
  EXPECT_FALSE(result.committed());
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_THAT(Message(result.status), HasSubstr(root_));
  EXPECT_THAT(Message(result.status), HasSubstr("node 1 was stopped"));
  EXPECT_TRUE(absl::IsUnavailable(database->health()));
  EXPECT_TRUE(database->Close().ok());
}

TEST_F(DatabaseCallsTest, HostsRegionsItselfWhenAsked) {
  StopCluster();
  std::filesystem::create_directory(root_ + "/own");
  DatabaseOptions options = Options();
  options.cluster = "";
  options.storage = true;
  options.id = 1;
  options.directory = root_ + "/own";
  options.replicas = 1;
  options.region_bytes = 4 << 20;
  options.old_version_bytes = 4 << 20;
  std::unique_ptr<Database> database = OpenDatabase(std::move(options));
  ASSERT_NE(database, nullptr);
  TablePointer table = MakeCounter(*database, "counter");
  EXPECT_TRUE(database->Run(Increment(table)).committed());
  EXPECT_EQ(ReadCounter(*database, table), 1u);
}

TEST(DatabaseOpen, SaysWhatIsWrongWithTheCluster) {
  std::string pattern = "/tmp/furrow-client-test-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  DatabaseOptions options;
  options.join_timeout_ns = 200 * kMillisecond;
  EXPECT_TRUE(absl::IsInvalidArgument(Database::Open(options).status()));
  options.cluster = pattern;
  absl::Status none = Database::Open(options).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(Message(none), HasSubstr(pattern));

  const std::string secret = pattern + "/key";
  FILE* file = fopen(secret.c_str(), "w");
  ASSERT_NE(file, nullptr);
  fputs("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", file);
  fclose(file);
  std::filesystem::permissions(secret, std::filesystem::perms::owner_read);
  options.cluster = "127.0.0.1:1";
  EXPECT_TRUE(absl::IsInvalidArgument(Database::Open(options).status()));  // no secret
  options.secret_file = secret;
  options.wait_for_cluster = true;
  absl::Status waited = Database::Open(options).status();
  EXPECT_TRUE(absl::IsUnavailable(waited) || absl::IsDeadlineExceeded(waited)) << waited;
  EXPECT_THAT(Message(waited), HasSubstr("127.0.0.1:1"));
  // Nobody listens there: known at once, however long the wait for a cluster may be.
  options.wait_for_cluster = false;
  options.join_timeout_ns = 3600 * kSecond;
  absl::Status nobody = Database::Open(options).status();
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
  EXPECT_THAT(Message(nobody), HasSubstr("no Furrow member answers at 127.0.0.1:1"));
  EXPECT_THAT(Message(nobody), HasSubstr("furrow status"));
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace furrow
