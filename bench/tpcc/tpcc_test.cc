// TPC-C as a whole, on three nodes in one thread: load, run, check.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/harness/driver.h"
#include "bench/harness/slots.h"
#include "bench/harness/static_cluster.h"
#include "bench/tpcc/check.h"
#include "bench/tpcc/workload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::bench::tpcc {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint32_t kNodes = 3;

class TpccTest : public ::testing::Test {
 protected:
  TpccTest()
      : directory_(MakeDirectory()), cluster_(std::make_unique<StaticCluster>(SmallCluster(), directory_)) {
    for (uint32_t n = 0; n < kNodes; ++n) {
      workloads_.push_back(std::make_unique<TpccWorkload>(SmallScale(), kSeed, true));
    }
  }
  ~TpccTest() override {
    cluster_.reset();
    std::filesystem::remove_all(directory_);
  }

  static std::string MakeDirectory() {
    char directory[] = "/tmp/furrow-tpcc-XXXXXX";
    return ::mkdtemp(directory);
  }
  static StaticCluster::Options SmallCluster() {
    StaticCluster::Options options;
    options.nodes = kNodes;
    options.region_bytes = 24 << 20;
    return options;
  }
  static Scale SmallScale() {
    return {.warehouses = 3, .districts = 3, .customers = 30, .items = 100, .item_copies = kNodes};
  }
  static Place PlaceOf(uint32_t n) { return {.process = n, .processes = kNodes, .worker = 0, .workers = 1}; }

  void Load() {
    Progress progress;
    ASSERT_EQ(cluster_->Wait(0, workloads_[0]->Create(cluster_->host(0).catalog(), cluster_->worker(0))),
              absl::OkStatus());
    for (uint32_t n = 0; n < kNodes; ++n) {
      ASSERT_EQ(cluster_->Wait(n, workloads_[n]->Open(cluster_->host(n).catalog(), cluster_->worker(n))),
                absl::OkStatus());
      ASSERT_EQ(cluster_->Wait(n, workloads_[n]->Load(cluster_->worker(n), PlaceOf(n), &progress)),
                absl::OkStatus());
    }
    EXPECT_NEAR(static_cast<double>(progress.done), static_cast<double>(progress.total),
                static_cast<double>(progress.total) / 20);
  }

  // Runs terminals on all nodes until at least `count` transactions have committed.
  Measurement Run(uint64_t count) {
    std::vector<std::unique_ptr<Driver>> drivers;
    size_t running = kNodes;
    for (uint32_t n = 0; n < kNodes; ++n) {
      drivers.push_back(
          std::make_unique<Driver>(cluster_->worker(n), workloads_[n]->types(), Driver::Options{}));
      drivers[n]->Start(workloads_[n]->MakeTerminals(cluster_->worker(n), PlaceOf(n), 4, kSeed + n),
                        [&running] { --running; });
    }
    auto measured = [&drivers] {
      Measurement all;
      for (const auto& driver : drivers) all.Merge(driver->Measured());
      return all;
    };
    cluster_->TurnUntil([&] { return measured().committed() >= count || running == 0; });
    for (auto& driver : drivers) driver->Stop();
    cluster_->TurnUntil([&running] { return running == 0; });
    return measured();
  }

  // Names of the checks that fail.
  std::set<std::string> Check(bool after_load, size_t* checks = nullptr) {
    EXPECT_EQ(cluster_->Drain(), absl::OkStatus());
    std::vector<CheckResult> results;
    EXPECT_EQ(
        cluster_->Wait(1, workloads_[1]->Check(cluster_->host(1), cluster_->worker(1), after_load, &results)),
        absl::OkStatus());
    std::set<std::string> failed;
    for (const CheckResult& result : results) {
      if (!result.pass) failed.insert(result.name);
    }
    if (checks != nullptr) *checks = results.size();
    return failed;
  }

  // A row of the table, anywhere in the memory of a node that is (or is not) its primary, loses a bit.
  void Corrupt(TableKind kind, bool at_primary) {
    // The table's id, as rows name it.
    auto tables = std::unique_ptr<Tables>();
    ASSERT_EQ(cluster_->Wait(0, OpenInto(&tables)), absl::OkStatus());
    const uint32_t id = (*tables)[kind].id();
    bool done = false;
    txn::Node& node = cluster_->worker(2).node();
    node.regions.ForEach([&](storage::Region& region) {
      const bool primary = node.directory.Find(region.id())->primary().node == node.options.id;
      if (done || primary != at_primary) return;
      done = FlipBit(region, [id](std::span<const std::byte> payload) {
        return std::memcmp(payload.data(), &id, sizeof(id)) == 0;
      });
    });
    ASSERT_TRUE(done);
  }
  Task<absl::Status> OpenInto(std::unique_ptr<Tables>* tables) {
    auto opened = co_await OpenTables(cluster_->host(0).catalog(), cluster_->worker(0), SmallScale());
    if (!opened.ok()) co_return opened.status();
    *tables = std::move(*opened);
    co_return absl::OkStatus();
  }

  const std::string directory_;
  std::unique_ptr<StaticCluster> cluster_;
  std::vector<std::unique_ptr<TpccWorkload>> workloads_;
};

using Names = std::set<std::string>;

TEST_F(TpccTest, LoadAndRunKeepAllConditions) {
  Load();
  size_t checks = 0;
  EXPECT_EQ(Check(/*after_load=*/true, &checks), Names{});
  EXPECT_EQ(checks, 14u);
  const Measurement measured = Run(1500);
  EXPECT_EQ(measured.ended_early, "");
  for (const TypeResult& type : measured.types) EXPECT_GT(type.committed, 0u) << type.name;
  EXPECT_GT(measured.rolled_back(), 0u);
  EXPECT_GT(measured.distributed, 0u);
  EXPECT_GT(measured.remote_reads, 0u);
  EXPECT_EQ(measured.unknown, 0u);
  EXPECT_EQ(Check(/*after_load=*/false, &checks), Names{});
  EXPECT_EQ(checks, 36u);
  // A second run on the same data.
  EXPECT_EQ(Run(200).ended_early, "");
  EXPECT_EQ(Check(false), Names{});
}

TEST_F(TpccTest, AnInterruptedLoadIsNeitherUsedNorMixedWithAnother) {
  Progress progress;
  index::Catalog& catalog = cluster_->host(0).catalog();
  ASSERT_EQ(cluster_->Wait(0, workloads_[0]->Create(catalog, cluster_->worker(0))), absl::OkStatus());
  for (uint32_t n = 0; n + 1 < kNodes; ++n) {  // the last one's share is missing
    ASSERT_EQ(cluster_->Wait(n, workloads_[n]->Open(cluster_->host(n).catalog(), cluster_->worker(n))),
              absl::OkStatus());
    ASSERT_EQ(cluster_->Wait(n, workloads_[n]->Load(cluster_->worker(n), PlaceOf(n), &progress)),
              absl::OkStatus());
  }
  TpccWorkload use(SmallScale(), kSeed, true, Data::kThere);
  const absl::Status used = cluster_->Wait(0, use.Open(catalog, cluster_->worker(0)));
  EXPECT_TRUE(absl::IsFailedPrecondition(used)) << used;
  EXPECT_THAT(std::string(used.message()), ::testing::HasSubstr("load it anew with --reload"));
  const absl::Status mixed = cluster_->Wait(0, workloads_[0]->Create(catalog, cluster_->worker(0)));
  EXPECT_TRUE(absl::IsAlreadyExists(mixed)) << mixed;
  TpccWorkload replace(SmallScale(), kSeed, true, Data::kReplace);
  EXPECT_EQ(cluster_->Wait(0, replace.Create(catalog, cluster_->worker(0))), absl::OkStatus());
  for (uint32_t n = 0; n < kNodes; ++n) {
    ASSERT_EQ(cluster_->Wait(n, workloads_[n]->Open(cluster_->host(n).catalog(), cluster_->worker(n))),
              absl::OkStatus());
    ASSERT_EQ(cluster_->Wait(n, workloads_[n]->Load(cluster_->worker(n), PlaceOf(n), &progress)),
              absl::OkStatus());
  }
  EXPECT_EQ(cluster_->Wait(0, use.Open(catalog, cluster_->worker(0))), absl::OkStatus());
  EXPECT_EQ(Check(true), Names{});
}

TEST_F(TpccTest, TablesOfAnotherSizeAreRefusedWithTheirOwn) {
  Load();
  Scale other = SmallScale();
  other.items *= 50;  // 5 %, where the tables have what 0.1 % would be
  TpccWorkload larger(other, kSeed, true, Data::kThere);
  const absl::Status used = cluster_->Wait(0, larger.Open(cluster_->host(0).catalog(), cluster_->worker(0)));
  EXPECT_TRUE(absl::IsFailedPrecondition(used)) << used;
  EXPECT_THAT(std::string(used.message()), ::testing::HasSubstr("another --scale: 100 items, not 5000"));
}

TEST_F(TpccTest, ACorruptBackupFailsTheCheck) {
  Load();
  Corrupt(TableKind::kStock, /*at_primary=*/false);
  EXPECT_EQ(Check(false), Names{"replicas"});
}

TEST_F(TpccTest, ACorruptPrimaryFailsTheCheck) {
  Load();
  Corrupt(TableKind::kOrders, /*at_primary=*/true);
  EXPECT_THAT(Check(false), ::testing::Contains("replicas"));
}

}  // namespace
}  // namespace furrow::bench::tpcc
