// A scan whose reads never wait still lets the others of its worker run.
#include "absl/strings/str_cat.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

constexpr int kRows = 3000;

std::string KeyOf(int i) { return absl::StrCat(100'000 + i); }

Task<absl::Status> Fill(txn::Worker& worker, const Table& table) {
  for (int first = 0; first < kRows; first += 50) {
    const txn::CommitResult result = co_await worker.Run([&](txn::Transaction& tx) -> Task<absl::Status> {
      for (int i = first; i < first + 50; ++i) {
        auto inserted = co_await table.Insert(tx, KeyOf(i), "value");
        if (!inserted.ok()) co_return inserted.status();
      }
      co_return absl::OkStatus();
    });
    if (!result.status.ok()) co_return result.status;
  }
  co_return absl::OkStatus();
}

TEST(ScanTurns, ALongScanOfLocalRowsGivesTurnsAway) {
  IndexCluster cluster(/*seed=*/1);
  auto table = cluster.Create(0, {.name = "long", .primary = IndexKind::kBtree, .max_key_bytes = 16});
  ASSERT_NE(table, nullptr);
  cluster.RunOn(
      0, [&](txn::Worker& worker) -> Task<void> { IndexCluster::Check(co_await Fill(worker, *table)); });
  int rows = 0;
  bool over = false;
  int turns_while_scanning = 0;
  const auto other = [&](EventLoop& loop) -> Task<void> {
    while (!over) {
      if (rows > 0 && rows < kRows) ++turns_while_scanning;
      co_await loop.Yield();
    }
  };
  cluster.worker(0).loop().Spawn(other(cluster.worker(0).loop()));
  cluster.RunOn(0, [&](txn::Worker& worker) -> Task<void> {
    const txn::CommitResult result = co_await worker.Run([&](txn::Transaction& tx) -> Task<absl::Status> {
      rows = 0;
      co_return co_await table->Scan(tx, {}, [&](const Row&) { return ++rows > 0; });
    });
    IndexCluster::Check(result.status);
    over = true;
  });
  EXPECT_EQ(rows, kRows);
  EXPECT_GE(turns_while_scanning, 2);
}

// Reads of local rows never wait, and would go on for ever after the deadline.
TEST(ScanTurns, ALongScanOfLocalRowsEndsAtItsDeadline) {
  IndexCluster cluster(/*seed=*/1);
  for (const IndexKind kind : {IndexKind::kBtree, IndexKind::kHash}) {
    const std::string name = kind == IndexKind::kBtree ? "tree" : "hash";
    auto table = cluster.Create(0, {.name = name, .primary = kind, .max_key_bytes = 16});
    ASSERT_NE(table, nullptr);
    cluster.RunOn(
        0, [&](txn::Worker& worker) -> Task<void> { IndexCluster::Check(co_await Fill(worker, *table)); });
    int rows = 0;
    cluster.RunOn(0, [&](txn::Worker& worker) -> Task<void> {
      const txn::CommitResult result = co_await worker.Run(
          [&](txn::Transaction& tx) -> Task<absl::Status> {
            co_await tx.worker().loop().SleepUntil(tx.deadline() + 1);
            co_return co_await table->Scan(tx, {}, [&](const Row&) { return ++rows > 0; });
          },
          {.transaction = {.read_only = true}});
      EXPECT_EQ(result.status.code(), absl::StatusCode::kDeadlineExceeded) << result.status;
    });
    EXPECT_GT(rows, 0);
    EXPECT_LT(rows, kRows);
  }
}

}  // namespace
}  // namespace furrow::index
