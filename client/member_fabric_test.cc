#include "client/member_fabric.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace furrow::client {
namespace {

MemberOptions At(const std::string& listen, const std::string& fabric = "auto") {
  MemberOptions options;
  options.listen = listen;
  options.fabric = fabric;
  return options;
}

const std::vector<RdmaDevice> kDevices = {{"rxe0", true, {"10.77.0.1", "10.77.0.2"}},
                                          {"rxe1", false, {"10.78.0.1"}}};

TEST(ChooseFabricTest, AutoTakesVerbsOnlyWhereADeviceWithALiveLinkHasTheAddress) {
  auto choice = ChooseFabric(At("10.77.0.2:4500"), kDevices);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->name, "verbs");
  EXPECT_EQ(choice->address, "10.77.0.2");
  EXPECT_NE(choice->why.find("rxe0"), std::string::npos);

  for (const char* listen : {"10.78.0.1:0", "10.79.0.1:0", "127.0.0.1:0", "localhost:0", "[::1]:0"}) {
    choice = ChooseFabric(At(listen), kDevices);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->name, "shm") << listen;
    EXPECT_NE(choice->why.find("rxe1 (its port is down)"), std::string::npos) << choice->why;
  }
  choice = ChooseFabric(At("10.77.0.1:0"), {});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->name, "shm");
}

TEST(ChooseFabricTest, WhatIsSetCounts) {
  EXPECT_EQ(ChooseFabric(At("10.77.0.1:0", "shm"), kDevices)->name, "shm");
  EXPECT_EQ(ChooseFabric(At("10.77.0.1:0", "verbs"), {})->name, "verbs");
  MemberOptions options = At("127.0.0.1:0", "verbs");
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseFabric(options, kDevices).status()));
  options.rdma.address = "10.77.0.2";
  EXPECT_EQ(ChooseFabric(options, kDevices)->address, "10.77.0.2");
}

TEST(JoinFabricTest, AMemberTakesTheFabricOfItsCluster) {
  EXPECT_EQ(JoinFabric(At("127.0.0.1:0"), "shm", "127.0.0.1:4500")->name, "shm");
  const auto verbs = JoinFabric(At("10.77.0.3:0"), "verbs", "10.77.0.1:4500");
  ASSERT_TRUE(verbs.ok()) << verbs.status();
  EXPECT_EQ(verbs->address, "10.77.0.3");
  // A member that listens nowhere else has the address from which it reaches the manager.
  const auto compute = JoinFabric(At("127.0.0.1:0"), "verbs", "127.0.0.2:4500");
  ASSERT_TRUE(compute.ok()) << compute.status();
  EXPECT_TRUE(IsLoopback(compute->address)) << compute->address;
}

TEST(JoinFabricTest, AnotherFabricThanTheClustersIsRefused) {
  for (const char* fabric : {"verbs", "shm"}) {
    const auto choice =
        JoinFabric(At("10.77.0.3:0", fabric), fabric == std::string("shm") ? "verbs" : "shm", "h:1");
    EXPECT_TRUE(absl::IsFailedPrecondition(choice.status())) << choice.status();
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(JoinFabric(At("10.77.0.3:0"), "pigeons", "h:1").status()));
}

TEST(JoinFabricTest, SharedMemoryOfAnotherHostIsRefused) {
  const auto choice = JoinFabric(At("127.0.0.1:0"), "shm", "192.0.2.1:4500");  // of documentation, nobody's
  EXPECT_TRUE(absl::IsFailedPrecondition(choice.status())) << choice.status();
  EXPECT_NE(choice.status().message().find("192.0.2.1:4500 is not one of this host"), std::string::npos);
  EXPECT_TRUE(JoinFabric(At("127.0.0.1:0"), "shm", "localhost:4500").ok());
}

TEST(HostOfTest, TakesThePortAway) {
  EXPECT_EQ(HostOf("10.77.0.1:4500"), "10.77.0.1");
  EXPECT_EQ(HostOf("[fe80::1]:4500"), "fe80::1");
  EXPECT_EQ(HostOf("db1.example:4500"), "db1.example");
}

TEST(RdmaOptionsTest, RangesAreChecked) {
  MemberOptions options;
  options.cluster = "somewhere";
  ASSERT_TRUE(Validate(options).ok()) << Validate(options);
  const auto refused = [&](uint64_t RdmaOptions::* field, uint64_t value) {
    MemberOptions bad = options;
    bad.rdma.*field = value;
    const absl::Status status = Validate(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("RdmaOptions::"), std::string::npos) << status;
  };
  refused(&RdmaOptions::gid_index, 256);
  refused(&RdmaOptions::traffic_class, 256);
  refused(&RdmaOptions::service_level, 8);
  refused(&RdmaOptions::lease_traffic_class, 256);
  refused(&RdmaOptions::lease_service_level, 8);
  refused(&RdmaOptions::retry_count, 7);  // for ever, on some devices
  refused(&RdmaOptions::ack_timeout, 0);
  refused(&RdmaOptions::ack_timeout, 32);
  refused(&RdmaOptions::max_mtu, 1500);
  refused(&RdmaOptions::max_mtu, 8192);
  refused(&RdmaOptions::read_depth, 0);
  options.fabric = "ethernet";
  EXPECT_TRUE(absl::IsInvalidArgument(Validate(options)));
}

}  // namespace
}  // namespace furrow::client
