#include "index/catalog.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "index/catalog_root.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;

TableSpec Spec(std::string name, std::string group = "", uint32_t partitions = 3) {
  TableSpec spec;
  spec.name = std::move(name);
  spec.primary = IndexKind::kHash;
  spec.partitions = partitions;
  spec.prefix_bytes = 1;
  spec.placement_group = std::move(group);
  spec.expected_rows_per_partition = 7000;  // more than one chunk of buckets
  spec.secondaries.push_back({.name = "by_value",
                              .kind = IndexKind::kBtree,
                              .unique = false,
                              .parts = {{KeyPart::Source::kValue, 0, 4}}});
  return spec;
}

absl::Status CreateStatus(IndexCluster& cluster, uint32_t node, TableSpec spec) {
  absl::Status status;
  cluster.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
    status = (co_await cluster.catalog(node).CreateTable(worker, spec)).status();
  });
  return status;
}

TEST(Catalog, ATableMadeOnOneNodeIsUsedOnAnother) {
  IndexCluster cluster(1);
  cluster.Create(1, Spec("customer"));
  for (uint32_t node = 0; node < 3; ++node) {
    const std::shared_ptr<const Table> table = cluster.Open(node, "customer");
    ASSERT_NE(table, nullptr);
    EXPECT_EQ(table->FindSecondary("by_value"), 0);
    EXPECT_EQ(table->FindSecondary("by_nothing"), -1);
    cluster.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
        for (uint32_t other = 0; other < node; ++other) {
          const RowResult row = co_await table->Get(tx, "key" + std::to_string(other));
          if (!row.ok()) co_return row.status();
          EXPECT_EQ(row->value, "value");
        }
        co_return (co_await table->Insert(tx, "key" + std::to_string(node), "value")).status();
      });
      IndexCluster::Check(result.status);
    });
  }
}

TEST(Catalog, NamesAreUniqueAndListed) {
  IndexCluster cluster(2);
  cluster.Create(0, Spec("b"));
  cluster.Create(1, Spec("a"));
  EXPECT_EQ(CreateStatus(cluster, 2, Spec("a")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CreateStatus(cluster, 2, Spec("")).code(), absl::StatusCode::kInvalidArgument);
  cluster.RunOn(2, [&](txn::Worker& worker) -> Task<void> {
    const auto names = co_await cluster.catalog(2).ListTables(worker);
    IndexCluster::Check(names.status());
    EXPECT_EQ(names.value_or(std::vector<std::string>()), (std::vector<std::string>{"a", "b"}));
    const auto missing = co_await cluster.catalog(2).Open(worker, "c");
    EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  });
}

// A table of the catalog's name would otherwise be taken for the catalog by the process that made or opened
// it.
TEST(Catalog, NamesOfItsOwnAreRefusedAndNeverTakenForTheCatalog) {
  IndexCluster cluster(7);
  const auto before = cluster.Create(0, Spec("before"));
  for (const char* name : {"furrow.catalog", "furrow.", "furrow.x"}) {
    const absl::Status refused = CreateStatus(cluster, 0, Spec(name));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_NE(refused.message().find("Furrow's own"), std::string::npos) << refused;
  }
  IndexCluster::Check(CreateStatus(cluster, 0, Spec("furrow")));
  // One that an older version has made.
  cluster.RunOn(0, [&](txn::Worker& worker) -> Task<void> {
    const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
      CatalogRoot root;
      const txn::ReadResult read = co_await tx.Read(CatalogRootAddress(RegionId(1)), sizeof(root));
      if (!read.ok()) co_return read.status();
      std::memcpy(&root, read->data(), sizeof(root));
      InnerCache cache(1 << 20);
      const Table catalog(CatalogDescriptor(RegionId(1), Address::FromBits(root.tree)), {}, cache);
      TableDescriptor old = before->descriptor();
      old.spec.name = "furrow.catalog";
      const std::string key = TableKey(old.spec.name);
      const std::string value = Encode(old);
      co_return (co_await catalog.Insert(tx, key, value)).status();
    });
    IndexCluster::Check(result.status);
  });
  EXPECT_NE(cluster.Open(0, "furrow.catalog"), nullptr);
  EXPECT_NE(cluster.Open(0, "before"), nullptr);
  cluster.Create(0, Spec("after"));
  EXPECT_NE(cluster.Open(1, "after"), nullptr);
}

TEST(Catalog, TablesOfAGroupShareTheirPlaces) {
  IndexCluster cluster(3);
  const auto first = cluster.Create(0, Spec("first", "warehouse"));
  const auto second = cluster.Create(1, Spec("second", "warehouse"));
  const auto other = cluster.Create(2, Spec("other"));
  ASSERT_TRUE(first != nullptr && second != nullptr && other != nullptr);
  for (uint32_t p = 0; p < 3; ++p) {
    EXPECT_EQ(first->PartitionRegion(p), second->PartitionRegion(p));
    EXPECT_NE(first->PartitionRegion(p), other->PartitionRegion(p));
    const auto* mapping = cluster.sim().node(0).directory.Find(first->PartitionRegion(p));
    ASSERT_NE(mapping, nullptr);
    EXPECT_EQ(mapping->primary().node, NodeId(p + 1)) << "partitions are spread over the members";
  }
  EXPECT_EQ(CreateStatus(cluster, 0, Spec("third", "warehouse", 2)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Catalog, FoundingTwiceChangesNothing) {
  IndexCluster cluster(4);
  cluster.Create(0, Spec("t"));
  cluster.RunOn(1, [&](txn::Worker& worker) -> Task<void> {
    IndexCluster::Check(co_await Catalog::Bootstrap(worker, RegionId(1)));
  });
  EXPECT_NE(cluster.Open(2, "t"), nullptr);
}

TEST(Catalog, IsUnavailableUntilItIsFoundedAndRefusesARegionInUse) {
  IndexCluster cluster(5);
  const absl::StatusOr<RegionId> region = cluster.sim().AddRegion(1);
  ASSERT_TRUE(region.ok());
  Catalog catalog({.first_region = *region});
  cluster.RunOn(2, [&](txn::Worker& worker) -> Task<void> {
    EXPECT_EQ((co_await catalog.Open(worker, "t")).status().code(), absl::StatusCode::kUnavailable);
    // Somebody else's object takes the first slot.
    const txn::CommitResult taken = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
      auto made = co_await tx.Alloc(*region, 500);
      co_return made.status();
    });
    IndexCluster::Check(taken.status);
    EXPECT_EQ((co_await Catalog::Bootstrap(worker, *region)).code(), absl::StatusCode::kFailedPrecondition);
  });
}

// Overflow buckets come and go with their rows.
TEST(Catalog, AnEmptiedHashTableLeavesNoObjectBehind) {
  IndexCluster cluster(6);
  TableSpec spec = Spec("t", "", 1);
  spec.expected_rows_per_partition = 10;
  spec.secondaries.clear();
  const auto table = cluster.Create(0, spec);
  const auto slots = [&] {
    IndexCluster::Check(cluster.sim().DrainAndCompare());
    return cluster.sim().node(0).allocator.usage().allocated_slots;
  };
  const uint64_t before = slots();
  for (int round = 0; round < 2; ++round) {
    for (const bool fill : {true, false}) {
      for (int from = 0; from < 300; from += 50) {
        cluster.RunOn(static_cast<uint32_t>(round), [&](txn::Worker& worker) -> Task<void> {
          const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
            for (int i = from; i < from + 50; ++i) {
              const std::string key = "key" + std::to_string(i);
              absl::Status status;
              if (fill) {
                status = (co_await table->Insert(tx, key, "value")).status();
              } else {
                RowResult row = co_await table->Get(tx, key);
                status = row.ok() ? co_await table->Delete(tx, *row) : row.status();
              }
              if (!status.ok()) co_return status;
            }
            co_return absl::OkStatus();
          });
          IndexCluster::Check(result.status);
        });
      }
      if (fill) {
        EXPECT_GT(slots(), before + 300 + 20) << "rows and overflow buckets";
      } else {
        EXPECT_EQ(slots(), before);
      }
    }
  }
}

}  // namespace
}  // namespace furrow::index
