#include "rdma/verbs/verbs_test_world.h"

#include <sched.h>
#include <stdlib.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include "rdma/verbs/verbs_device.h"

namespace furrow::rdma {
namespace {

constexpr Nanos kGiveUp = 120 * kSecond;

std::vector<std::string> FindAddresses() {
  if (const char* chosen = getenv("FURROW_VERBS_ADDRESSES"); chosen != nullptr) {
    return absl::StrSplit(chosen, ',', absl::SkipEmpty());
  }
  std::vector<std::string> found;
  for (const VerbsDeviceInfo& device : ListVerbsDevices()) {
    if (device.active) found.insert(found.end(), device.addresses.begin(), device.addresses.end());
  }
  return found;
}

}  // namespace

const std::vector<std::string>& VerbsTestAddresses() {
  static const auto* const addresses = new std::vector<std::string>(FindAddresses());
  return *addresses;
}

std::string VerbsTestAddress(size_t i) { return VerbsTestAddresses()[i % VerbsTestAddresses().size()]; }

Endpoint VerbsTestEndpoint(size_t i) {
  // Ports of the connection manager, not of TCP. Those of ended listeners are free at once.
  static std::atomic<uint32_t> next{0};
  return absl::StrCat(VerbsTestAddress(i), ":", 20'000 + next++ % 10'000);
}

int VerbsTestRounds(int rounds) {
  const char* factor = getenv("FURROW_VERBS_ROUNDS");
  return factor == nullptr ? rounds : rounds * atoi(factor);
}

FabricWorld::Node VerbsTestWorld::AddNode(const FabricIdentity& identity) {
  auto member = std::make_unique<Member>();
  auto fabric = MakeVerbsFabric({.identity = identity, .address = VerbsTestAddress(members_.size())});
  EXPECT_TRUE(fabric.ok()) << fabric.status();
  FURROW_CHECK(fabric.ok());
  member->fabric = *std::move(fabric);
  member->queue = *member->fabric->CreateCompletionQueue();
  member->loop = std::make_unique<EventLoop>(MonotonicClock(), member->queue->parker());
  Node node{member->fabric.get(), member->queue.get(), member->loop.get(),
            VerbsTestEndpoint(members_.size())};
  members_.push_back(std::move(member));
  return node;
}

void VerbsTestWorld::RunLoops() {
  for (auto& member : members_) member->loop->RunOnce();
}

bool VerbsTestWorld::RunUntil(const std::function<bool()>& done) {
  const Nanos limit = MonotonicClock().Now() + kGiveUp;
  for (;;) {
    RunLoops();
    if (done()) return true;
    if (MonotonicClock().Now() > limit) return false;
    sched_yield();
  }
}

// What is under way may need a packet to be sent again, or several.
void VerbsTestWorld::Settle(const std::function<void()>& poll) {
  const Nanos end = MonotonicClock().Now() + 150 * kMillisecond;
  while (MonotonicClock().Now() < end) {
    RunLoops();
    poll();
    SleepThreadUntil(MonotonicClock().Now() + kMillisecond);
  }
}

bool VerbsTestWorld::LosesPackets() const { return getenv("FURROW_VERBS_LOSS") != nullptr; }

bool VerbsTestWorld::Kill(const Node& node) {
  KillVerbsFabric(*node.fabric);
  return true;
}

}  // namespace furrow::rdma
