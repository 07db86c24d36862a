#include "rdma/shm/shm_test_world.h"

#include <sched.h>
#include <stdlib.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"

namespace furrow::rdma {
namespace {
constexpr Nanos kGiveUp = 60 * kSecond;
}  // namespace

SocketDirectory::SocketDirectory() {
  std::string name = testing::TempDir() + "/furrow-shm-XXXXXX";
  FURROW_CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

SocketDirectory::~SocketDirectory() { std::filesystem::remove_all(path_); }

FabricWorld::Node ShmTestWorld::AddNode(const FabricIdentity& identity) {
  auto member = std::make_unique<Member>();
  auto fabric = MakeShmFabric({.identity = identity});
  EXPECT_TRUE(fabric.ok()) << fabric.status();
  member->fabric = *std::move(fabric);
  member->queue = *member->fabric->CreateCompletionQueue();
  member->loop = std::make_unique<EventLoop>(MonotonicClock(), member->queue->parker());
  Node node{member->fabric.get(), member->queue.get(), member->loop.get(),
            absl::StrCat(directory_.path(), "/", members_.size(), ".sock")};
  members_.push_back(std::move(member));
  return node;
}

bool ShmTestWorld::RunUntil(const std::function<bool()>& done) {
  const Nanos limit = MonotonicClock().Now() + kGiveUp;
  for (;;) {
    for (auto& member : members_) member->loop->RunOnce();
    if (done()) return true;
    if (MonotonicClock().Now() > limit) return false;
    sched_yield();
  }
}

// Nothing here happens late but through the fabrics' threads, which are let to the core.
void ShmTestWorld::Settle(const std::function<void()>& poll) {
  for (int i = 0; i < 200; ++i) {
    for (auto& member : members_) member->loop->RunOnce();
    poll();
    sched_yield();
  }
}

bool ShmTestWorld::Kill(const Node& node) {
  KillShmFabric(*node.fabric);
  return true;
}

}  // namespace furrow::rdma
