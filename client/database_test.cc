// Whole members in this process: a founder that hosts regions, and compute members beside it.
#include "client/database.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <latch>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/member.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow {
namespace {

using ::testing::HasSubstr;

class DatabaseTest : public ::testing::Test {
 protected:
  DatabaseTest() {
    SetLogLevel(LogLevel::kError);
    char name[] = "/tmp/furrow-client-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~DatabaseTest() override { std::filesystem::remove_all(root_); }

  DatabaseOptions Founder() {
    DatabaseOptions options;
    options.storage = true;
    options.id = 1;
    options.directory = root_;
    options.socket_directory = root_ + "/sockets";
    options.replicas = 1;
    options.region_bytes = 8 << 20;
    options.old_version_bytes = 4 << 20;
    options.log_ring_bytes = 1 << 20;
    return options;
  }
  DatabaseOptions Compute() {
    DatabaseOptions options;
    options.cluster = root_;
    options.socket_directory = root_ + "/sockets";
    options.log_ring_bytes = 1 << 20;
    return options;
  }
  static std::unique_ptr<Database> Open(DatabaseOptions options) {
    absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(std::move(options));
    EXPECT_TRUE(db.ok()) << db.status();
    return db.ok() ? *std::move(db) : nullptr;
  }
  static TableSpec Numbers() {
    TableSpec spec;
    spec.name = "numbers";
    spec.max_key_bytes = 16;
    return spec;
  }

  std::string root_;
};

Task<absl::Status> Put(Transaction& tx, const Table& table, std::string key, std::string value) {
  RowResult row = co_await table.Insert(tx, key, value);
  co_return row.status();
}

Task<absl::Status> Find(Transaction& tx, const Table& table, std::string key, std::string* value) {
  RowResult row = co_await table.Get(tx, key);
  if (row.ok()) *value = std::string(row->value);
  co_return row.status();
}

// Adds one to the row's number.
Task<absl::Status> Increment(Transaction& tx, const Table& table, std::string key) {
  RowResult row = co_await table.Get(tx, key);
  if (!row.ok()) co_return row.status();
  absl::StatusOr<std::span<std::byte>> bytes = table.OpenForWrite(tx, *row);
  if (!bytes.ok()) co_return bytes.status();
  uint64_t number;
  std::memcpy(&number, bytes->data(), sizeof(number));
  ++number;
  std::memcpy(bytes->data(), &number, sizeof(number));
  co_return absl::OkStatus();
}

TEST_F(DatabaseTest, DroppedTablesGiveTheirMemoryBack) {
  DatabaseOptions options = Founder();
  options.memory_bytes = 64 << 20;
  auto db = Open(std::move(options));
  ASSERT_NE(db, nullptr);
  // 6 MB of values in each round: without freeing the memory would be full in the eighth.
  constexpr int kRounds = 12;
  const std::string value(2000, 'v');
  TablePointer old;
  for (int round = 0; round < kRounds; ++round) {
    auto table = db->CreateTable(Numbers());
    ASSERT_TRUE(table.ok()) << "round " << round << ": " << table.status();
    for (int from = 0; from < 3000; from += 50) {
      CommitResult result = db->Run([&](Transaction& tx) -> Task<absl::Status> {
        for (int i = from; i < from + 50; ++i) {
          absl::Status put = co_await Put(tx, **table, std::to_string(i), value);
          if (!put.ok()) co_return put;
        }
        co_return absl::OkStatus();
      });
      ASSERT_TRUE(result.committed()) << "round " << round << ": " << result.status;
    }
    absl::Status dropped = db->DropTable("numbers");
    ASSERT_TRUE(dropped.ok()) << dropped;
    old = *table;
  }
  EXPECT_TRUE(absl::IsNotFound(db->DropTable("numbers")));
  EXPECT_TRUE(absl::IsNotFound(db->OpenTable("numbers").status()));
  std::string found;
  absl::Status read = db->Read([&](Transaction& tx) { return Find(tx, *old, "7", &found); });
  EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
  EXPECT_EQ(read.message(),
            "table \"numbers\" was dropped: open it again, if there is a new one of its name");
}

TEST_F(DatabaseTest, OpeningATableThatHasAnotherFormSaysWhatDiffers) {
  auto db = Open(Founder());
  TableSpec spec = Numbers();
  ASSERT_TRUE(db->OpenOrCreateTable(spec).ok());
  ASSERT_TRUE(db->OpenOrCreateTable(spec).ok());
  spec.max_key_bytes = 32;
  const absl::Status other = db->OpenOrCreateTable(spec).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("\"numbers\" is there and has another form"));
  EXPECT_THAT(std::string(other.message()), HasSubstr("max_key_bytes is 16, not 32"));
}

TEST_F(DatabaseTest, AResultTellsHowOftenTheBodyRan) {
  auto db = Open(Founder());
  auto table = db->CreateTable(Numbers());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(db->Run([&](Transaction& tx) { return Put(tx, **table, "one", "1"); }).attempts, 1u);
  int times = 0;
  CommitResult result = db->Run([&](Transaction&) -> Task<absl::Status> {
    co_return ++times < 3 ? absl::AbortedError("again") : absl::OkStatus();
  });
  EXPECT_TRUE(result.committed()) << result.status;
  EXPECT_EQ(result.attempts, 3u);
  EXPECT_EQ(CommitResult().attempts, 0u);
}

TEST_F(DatabaseTest, WritesOfASnapshotAreRefusedInTheWordsOfTheApi) {
  auto db = Open(Founder());
  auto table = db->CreateTable(Numbers());
  ASSERT_TRUE(table.ok()) << table.status();
  const absl::Status refused = db->Read([&](Transaction& tx) { return Put(tx, **table, "one", "1"); });
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("a read-only transaction cannot insert or write"));
}

TEST_F(DatabaseTest, KeysThatAreTooLongAreRefusedToWritersAndNotFoundByReaders) {
  auto db = Open(Founder());
  auto table = db->CreateTable(Numbers());
  ASSERT_TRUE(table.ok()) << table.status();
  const std::string key(17, 'k');
  const absl::Status put = db->Run([&](Transaction& tx) { return Put(tx, **table, key, "1"); }).status;
  EXPECT_TRUE(absl::IsInvalidArgument(put)) << put;
  EXPECT_THAT(std::string(put.message()), HasSubstr("a key has 17 bytes, the longest may have 16"));
  std::string value;
  EXPECT_TRUE(absl::IsNotFound(db->Read([&](Transaction& tx) { return Find(tx, **table, key, &value); })));
}

TEST_F(DatabaseTest, HostedRowsAreSeenByAComputeMemberOfTheSameProcess) {
  auto host = Open(Founder());
  auto client = Open(Compute());
  EXPECT_EQ(host->node_id(), 1u);
  EXPECT_GT(client->node_id(), 1000u);
  EXPECT_EQ(host->cluster_id(), client->cluster_id());
  auto table = host->CreateTable(Numbers());
  ASSERT_TRUE(table.ok()) << table.status();
  CommitResult put = host->Run([&](Transaction& tx) { return Put(tx, **table, "one", "1"); });
  ASSERT_TRUE(put.committed()) << put.status;
  auto seen = client->OpenTable("numbers");
  ASSERT_TRUE(seen.ok()) << seen.status();
  std::string value;
  ASSERT_TRUE(client->Read([&](Transaction& tx) { return Find(tx, **seen, "one", &value); }).ok());
  EXPECT_EQ(value, "1");
  EXPECT_EQ(*client->ListTables(), std::vector<std::string>{"numbers"});
}

TEST_F(DatabaseTest, ErrorsOfTheBodyAndOfTheCatalogComeThrough) {
  auto db = Open(Founder());
  EXPECT_TRUE(absl::IsNotFound(db->OpenTable("nothing").status()));
  auto table = db->OpenOrCreateTable(Numbers());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(absl::IsAlreadyExists(db->CreateTable(Numbers()).status()));
  EXPECT_TRUE(db->OpenOrCreateTable(Numbers()).ok());
  std::string value;
  EXPECT_TRUE(absl::IsNotFound(db->Read([&](Transaction& tx) { return Find(tx, **table, "none", &value); })));
  CommitResult result =
      db->Run([](Transaction&) -> Task<absl::Status> { co_return absl::OutOfRangeError("mine"); });
  EXPECT_EQ(result.outcome, Outcome::kAborted);
  EXPECT_TRUE(absl::IsOutOfRange(result.status)) << result.status;
}

TEST_F(DatabaseTest, IncrementsFromManyThreadsAndMembersAreAllThere) {
  auto host = Open(Founder());
  auto client = Open(Compute());
  auto table = host->CreateTable(Numbers());
  ASSERT_TRUE(table.ok()) << table.status();
  CommitResult put = host->Run([&](Transaction& tx) { return Put(tx, **table, "n", std::string(8, '\0')); });
  ASSERT_TRUE(put.committed()) << put.status;
  auto theirs = client->OpenTable("numbers");
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  constexpr int kEach = 25;
  std::atomic<uint64_t> committed{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back(ThreadOptions{.name = "app", .realtime_priority = 0, .cpu = {}}, [&, i] {
        Database& db = i % 2 == 0 ? *host : *client;
        const Table& numbers = i % 2 == 0 ? **table : **theirs;
        for (int k = 0; k < kEach; ++k) {
          if (db.Run([&](Transaction& tx) { return Increment(tx, numbers, "n"); }).committed()) ++committed;
        }
      });
    }
  }
  EXPECT_EQ(committed.load(), 6u * kEach);
  std::string value;
  ASSERT_TRUE(client->Read([&](Transaction& tx) { return Find(tx, **theirs, "n", &value); }).ok());
  uint64_t number = 0;
  ASSERT_EQ(value.size(), sizeof(number));
  std::memcpy(&number, value.data(), sizeof(number));
  EXPECT_EQ(number, committed.load());
}

TEST_F(DatabaseTest, SpawnedTasksRunOnTheirWorkerAndCloseWaitsForThem) {
  DatabaseOptions options = Founder();
  options.workers = 2;
  auto db = Open(options);
  auto table = db->CreateTable(Numbers());
  ASSERT_TRUE(table.ok()) << table.status();
  std::atomic<int> done{0};
  for (size_t w = 0; w < 2; ++w) {
    ASSERT_TRUE(db->Spawn(w, [&, w](Worker& worker) -> Task<void> {
                    EXPECT_EQ(worker.id().value(), w);
                    co_await worker.loop().SleepFor(20 * kMillisecond);
                    CommitResult result = co_await db->RunOn(worker, [&, w](Transaction& tx) {
                      return Put(tx, **table, absl::StrCat("w", w), "x");
                    });
                    if (result.committed()) ++done;
                  }).ok());
  }
  EXPECT_TRUE(absl::IsInvalidArgument(db->Spawn(2, [](Worker&) -> Task<void> { co_return; })));
  EXPECT_TRUE(db->Close().ok());
  EXPECT_EQ(done.load(), 2);
}

TEST_F(DatabaseTest, CallsAfterCloseAreUnavailable) {
  auto db = Open(Founder());
  EXPECT_TRUE(db->Close().ok());
  EXPECT_TRUE(db->Close().ok());
  CommitResult result = db->Run([](Transaction&) -> Task<absl::Status> { co_return absl::OkStatus(); });
  EXPECT_FALSE(result.committed());
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_TRUE(absl::IsUnavailable(db->OpenTable("numbers").status()));
  EXPECT_TRUE(absl::IsUnavailable(db->Spawn(0, [](Worker&) -> Task<void> { co_return; })));
}

TEST_F(DatabaseTest, ComputeMemberSaysWhyWhenTheClusterIsStopped) {
  auto host = Open(Founder());
  std::latch told(1);
  DatabaseOptions options = Compute();
  options.on_end = [&](bool in_good_order, const std::string& why) {
    EXPECT_TRUE(in_good_order);
    EXPECT_THAT(why, HasSubstr("node 1 was stopped"));
    told.count_down();
  };
  auto client = Open(std::move(options));
  EXPECT_TRUE(client->health().ok());
  EXPECT_TRUE(host->Close().ok());
  told.wait();
  EXPECT_TRUE(absl::IsUnavailable(client->health()));
  absl::Status status = client->OpenTable("numbers").status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("node 1 was stopped"));
  EXPECT_TRUE(client->Close().ok());
}

TEST_F(DatabaseTest, CloseLeavesNothingBehind) {
  std::string id;
  {
    auto db = Open(Founder());
    id = db->cluster_id();
  }
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat("/dev/shm/furrow-", id.substr(0, 12), "-n1")));
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) left.push_back(entry.path());
  EXPECT_THAT(left, testing::ElementsAre(root_ + "/sockets"));
}

TEST_F(DatabaseTest, ClusterThatLacksMembersIsUnavailableAndSaysHowMany) {
  DatabaseOptions options = Founder();
  options.replicas = 2;
  options.join_timeout_ns = 200 * kMillisecond;
  auto db = Open(options);
  absl::Status status = db->CreateTable(Numbers()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(DatabaseTest, WrongOptionsAreRefused) {
  DatabaseOptions options;
  EXPECT_TRUE(absl::IsInvalidArgument(Database::Open(options).status()));  // no cluster
  options.cluster = root_ + "/nowhere";
  EXPECT_TRUE(absl::IsNotFound(Database::Open(options).status()));
  options = Founder();
  options.memory_bytes = 1 << 20;
  EXPECT_THAT(std::string(Database::Open(options).status().message()), HasSubstr("too little"));
  options = Compute();
  EXPECT_THAT(std::string(Database::Open(options).status().message()), HasSubstr("no running cluster"));
}

}  // namespace
}  // namespace furrow
