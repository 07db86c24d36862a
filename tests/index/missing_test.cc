// Storage that is missing from a table: dropped, not there yet, or lost.
#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "index/btree_node.h"
#include "index/hash_index.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;

enum class Kind { kBtree, kHash, kInline };

TableSpec Spec(std::string name, Kind kind) {
  TableSpec spec;
  spec.name = std::move(name);
  spec.primary = kind == Kind::kBtree ? IndexKind::kBtree : IndexKind::kHash;
  spec.max_key_bytes = 8;
  spec.max_value_bytes = 8;
  spec.row_layout = kind == Kind::kInline ? RowLayout::kInline : RowLayout::kSeparate;
  spec.expected_rows_per_partition = 100;
  return spec;
}

class MissingTest : public ::testing::TestWithParam<Kind> {
 protected:
  MissingTest() : cluster_(21) {}

  // Frees the root, or all buckets, behind the table's back.
  void Damage(const Table& table) {
    cluster_.RunOn(0, [&](txn::Worker& worker) -> Task<void> {
      const IndexDescriptor& index = table.descriptor().indexes[0];
      const IndexPartition partition = index.partitions[0];
      std::vector<Address> objects = {partition.root};
      if (GetParam() != Kind::kBtree) {
        const auto directory = co_await HashIndex::ReadDirectory(worker, index.id, partition);
        IndexCluster::Check(directory.status());
        objects.clear();
        for (uint32_t i = 0; i < directory->size(); ++i) objects.push_back(directory->at(i));
      }
      const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
        for (const Address address : objects) {
          const txn::ReadResult read = co_await tx.Read(address, 8);
          if (!read.ok()) co_return read.status();
          const absl::Status freed = tx.Free(address);
          if (!freed.ok()) co_return freed;
        }
        co_return absl::OkStatus();
      });
      IndexCluster::Check(result.status);
    });
  }
  absl::Status Run(uint32_t node, std::function<Task<absl::Status>(Transaction&)> body) {
    absl::Status status;
    cluster_.RunOn(node,
                   [&](txn::Worker& worker) -> Task<void> { status = (co_await worker.Run(body)).status; });
    return status;
  }

  IndexCluster cluster_;
};

TEST_P(MissingTest, StorageOfATableThatIsThereIsDataLoss) {
  const auto table = cluster_.Create(0, Spec("t", GetParam()));
  Damage(*table);
  for (uint32_t node = 0; node < 3; ++node) {
    const auto mine = cluster_.Open(node, "t");
    const absl::Status read = Run(node, [&](Transaction& tx) -> Task<absl::Status> {
      co_return (co_await mine->Get(tx, "a")).status();
    });
    EXPECT_TRUE(absl::IsDataLoss(read)) << read;
    EXPECT_NE(read.message().find("furrow doctor"), std::string::npos) << read;
    const absl::Status written = Run(node, [&](Transaction& tx) -> Task<absl::Status> {
      co_return (co_await mine->Insert(tx, "b", "value")).status();
    });
    EXPECT_TRUE(absl::IsDataLoss(written)) << written;
    const absl::Status many = Run(node, [&](Transaction& tx) -> Task<absl::Status> {
      const std::string_view keys[] = {"a", "b"};
      RowResult rows[] = {Row{}, Row{}};
      const absl::Status status = co_await mine->GetMany(tx, keys, rows);
      co_return status.ok() ? rows[1].status() : status;
    });
    EXPECT_TRUE(absl::IsDataLoss(many)) << many;
  }
}

TEST_P(MissingTest, ATransactionOlderThanTheTableRunsAgain) {
  int attempts = 0;
  cluster_.RunOn(1, [&](txn::Worker& worker) -> Task<void> {
    std::shared_ptr<const Table> table;
    const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
      if (++attempts == 1) {
        const auto made = co_await cluster_.catalog(1).CreateTable(worker, Spec("t", GetParam()));
        if (!made.ok()) co_return made.status();
        table = *made;
      }
      co_return (co_await table->Get(tx, "a")).status();
    });
    EXPECT_TRUE(absl::IsNotFound(result.status)) << result.status;
  });
  EXPECT_EQ(attempts, 2);
}

INSTANTIATE_TEST_SUITE_P(Kinds, MissingTest, ::testing::Values(Kind::kBtree, Kind::kHash, Kind::kInline));

}  // namespace
}  // namespace furrow::index
