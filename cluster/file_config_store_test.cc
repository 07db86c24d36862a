#include "cluster/file_config_store.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using ::testing::HasSubstr;
using Step = FileConfigStore::Step;

Configuration Example(uint64_t id) {
  Configuration c;
  c.cluster_id = "0123456789abcdef0123456789abcdef";
  c.id = ConfigId(id);
  c.manager = NodeId(1);
  Member m;
  m.id = NodeId(1);
  m.incarnation = Incarnation(7);
  m.failure_domain = "rack1";
  m.control_address = "127.0.0.1:4500";
  m.fabric_endpoint = "/tmp/n1";
  m.workers = 2;
  m.old_versions = {0x1000, rdma::RemoteKey(9)};
  m.old_version_bytes = 1 << 20;
  c.Add(m, 12);
  return c;
}

class FileConfigStoreTest : public ::testing::Test {
 protected:
  FileConfigStoreTest() {
    char name[] = "/tmp/furrow-config-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~FileConfigStoreTest() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<FileConfigStore> Open() {
    auto store = FileConfigStore::Open({.directory = Dir(), .expect_cluster_id = "", .fail = fail_});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::string Dir() const { return root_ + "/store"; }
  void Corrupt(size_t at, char value) {
    std::fstream file(Dir() + "/configuration", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(value);
  }

  std::string root_;
  std::function<int(Step)> fail_;
};

TEST_F(FileConfigStoreTest, EmptyStoreIsNotFound) {
  auto store = Open();
  EXPECT_TRUE(absl::IsNotFound(store->Read().status()));
}

TEST_F(FileConfigStoreTest, SwapSurvivesReopening) {
  ASSERT_TRUE(Open()->CompareAndSwap(0, Example(1)).ok());
  auto stored = Open()->Read();
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->version, 1u);
  EXPECT_EQ(Encode(stored->configuration), Encode(Example(1)));
  EXPECT_EQ(stored->configuration.CapacityOf(NodeId(1)), 12u);
  EXPECT_EQ(stored->configuration.members[0].incarnation, Incarnation(7));
}

TEST_F(FileConfigStoreTest, SwapOfAnotherVersionIsAborted) {
  auto store = Open();
  ASSERT_TRUE(store->CompareAndSwap(0, Example(1)).ok());
  EXPECT_TRUE(absl::IsAborted(store->CompareAndSwap(0, Example(2))));
  EXPECT_TRUE(absl::IsAborted(store->CompareAndSwap(2, Example(2))));
  EXPECT_TRUE(store->CompareAndSwap(1, Example(2)).ok());
  EXPECT_EQ(store->Read()->configuration.id, ConfigId(2));
}

TEST_F(FileConfigStoreTest, CrashBeforeTheRenameLeavesTheOldConfiguration) {
  ASSERT_TRUE(Open()->CompareAndSwap(0, Example(1)).ok());
  std::ofstream(Dir() + "/configuration.new") << "half of a configurat";
  auto store = Open();
  EXPECT_EQ(store->Read()->version, 1u);
  EXPECT_FALSE(std::filesystem::exists(Dir() + "/configuration.new"));
  EXPECT_TRUE(store->CompareAndSwap(1, Example(2)).ok());
}

TEST_F(FileConfigStoreTest, FullDiskChangesNothingAndSaysSo) {
  int error = 0;
  Step where = Step::kWrite;
  fail_ = [&](Step step) { return step == where ? error : 0; };
  auto store = Open();
  ASSERT_TRUE(store->CompareAndSwap(0, Example(1)).ok());
  error = ENOSPC;
  for (Step step : {Step::kWrite, Step::kSyncFile, Step::kRename}) {
    where = step;
    absl::Status status = store->CompareAndSwap(1, Example(2));
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("make room on that file system"));
    EXPECT_EQ(store->Read()->version, 1u);
    EXPECT_FALSE(std::filesystem::exists(Dir() + "/configuration.new"));
  }
  error = 0;
  EXPECT_TRUE(store->CompareAndSwap(1, Example(2)).ok());
}

TEST_F(FileConfigStoreTest, UnknownResultIsSettledByReading) {
  bool fail = true;
  fail_ = [&](Step step) { return fail && step == Step::kSyncDirectory ? EIO : 0; };
  auto store = Open();
  EXPECT_TRUE(absl::IsUnknown(store->CompareAndSwap(0, Example(1))));
  EXPECT_TRUE(Swap(*store, 1, Example(2)).ok());  // the directory cannot be synced, but the swap is there
  EXPECT_EQ(store->Read()->configuration.id, ConfigId(2));
}

TEST_F(FileConfigStoreTest, UnknownSwapThatAnotherWonIsAborted) {
  class Loses final : public ConfigStore {
   public:
    absl::StatusOr<StoredConfiguration> Read() override { return StoredConfiguration{version, Example(5)}; }
    absl::Status CompareAndSwap(uint64_t, const Configuration&) override {
      return absl::UnknownError("timed out");
    }
    uint64_t version = 5;
  } store;
  EXPECT_TRUE(absl::IsAborted(Swap(store, 4, Example(9))));
  store.version = 4;
  EXPECT_TRUE(absl::IsUnavailable(Swap(store, 4, Example(9))));
}

TEST_F(FileConfigStoreTest, SecondWriterIsRefusedInTheSameAndInAnotherProcess) {
  auto store = Open();
  auto second = FileConfigStore::Open({.directory = Dir(), .expect_cluster_id = "", .fail = nullptr});
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("one cluster per directory"));
  pid_t child = fork();  // lint-allow(seams): nothing is registered here
  if (child == 0) {
    auto other = FileConfigStore::Open({.directory = Dir(), .expect_cluster_id = "", .fail = nullptr});
    _exit(absl::IsFailedPrecondition(other.status()) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  store.reset();
  EXPECT_NE(Open(), nullptr);
}

TEST_F(FileConfigStoreTest, DamagedFileIsDataLoss) {
  ASSERT_TRUE(Open()->CompareAndSwap(0, Example(1)).ok());
  Corrupt(40, '\x7f');
  auto store = FileConfigStore::Open({.directory = Dir(), .expect_cluster_id = "", .fail = nullptr});
  EXPECT_TRUE(absl::IsDataLoss(store.status())) << store.status();
}

TEST_F(FileConfigStoreTest, TruncatedFileIsDataLoss) {
  ASSERT_TRUE(Open()->CompareAndSwap(0, Example(1)).ok());
  std::filesystem::resize_file(Dir() + "/configuration", 50);
  auto store = FileConfigStore::Open({.directory = Dir(), .expect_cluster_id = "", .fail = nullptr});
  EXPECT_TRUE(absl::IsDataLoss(store.status())) << store.status();
}

TEST_F(FileConfigStoreTest, NewerFormatIsRefusedWithASentence) {
  ASSERT_TRUE(Open()->CompareAndSwap(0, Example(1)).ok());
  Corrupt(8, 2);
  auto store = FileConfigStore::Open({.directory = Dir(), .expect_cluster_id = "", .fail = nullptr});
  EXPECT_TRUE(absl::IsFailedPrecondition(store.status()));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("newer Furrow"));
}

TEST_F(FileConfigStoreTest, StoreOfAnotherClusterIsRefused) {
  ASSERT_TRUE(Open()->CompareAndSwap(0, Example(1)).ok());
  auto store =
      FileConfigStore::Open({.directory = Dir(), .expect_cluster_id = std::string(32, 'f'), .fail = nullptr});
  EXPECT_TRUE(absl::IsFailedPrecondition(store.status()));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("belongs to cluster"));
}

TEST_F(FileConfigStoreTest, DirectoryWhoseParentIsMissingIsAClearError) {
  auto store = FileConfigStore::Open({.directory = root_ + "/a/b", .expect_cluster_id = "", .fail = nullptr});
  EXPECT_TRUE(absl::IsNotFound(store.status()));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(root_ + "/a/b"));
}

TEST_F(FileConfigStoreTest, DestroyLeavesNothing) {
  auto store = Open();
  ASSERT_TRUE(store->CompareAndSwap(0, Example(1)).ok());
  ASSERT_TRUE(store->Destroy().ok());
  EXPECT_FALSE(std::filesystem::exists(Dir()));
}

TEST(ConfigurationTest, RefusesWhatBreaksItsRules) {
  Configuration c = Example(1);
  c.manager = NodeId(2);
  EXPECT_FALSE(Validate(c).ok());
  c = Example(1);
  c.members[0].role = Role::kCompute;
  EXPECT_FALSE(Validate(c).ok());
  c = Example(1);
  c.Add(c.members[0], 1);
  EXPECT_FALSE(Validate(c).ok());
  c = Example(0);
  EXPECT_FALSE(Validate(c).ok());
  EXPECT_FALSE(DecodeConfiguration("not a configuration").ok());
}

}  // namespace
}  // namespace furrow::cluster
