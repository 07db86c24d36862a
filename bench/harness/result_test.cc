#include "bench/harness/result.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "bench/harness/json.h"

namespace furrow::bench {
namespace {

using ::testing::HasSubstr;

Measurement Example() {
  Measurement m;
  m.types.push_back({"new_order", 100, 1, {}});
  m.types.push_back({"payment", 90, 0, {}});
  m.types[0].latency.RecordMany(2 * kMillisecond, 99);
  m.types[0].latency.RecordMany(8 * kMillisecond, 2);
  m.types[1].latency.RecordMany(300 * kMicrosecond, 90);
  m.aborted = {{"lock_conflict", 7}, {"validate_conflict", 2}};
  m.unknown = 1;
  m.local_reads = 900;
  m.remote_reads = 100;
  m.distributed = 19;
  m.system_committed = 190;
  m.cpu_ns = 190 * 75 * kMicrosecond;
  m.measured_ns = 2 * kSecond;
  m.ended_early = "RESOURCE_EXHAUSTED: region memory is full";
  return m;
}

TEST(MeasurementTest, SurvivesTheWayToTheParent) {
  const Measurement m = Example();
  const auto decoded = Measurement::Decode(m.Encode());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->types.size(), 2u);
  EXPECT_EQ(decoded->types[0].name, "new_order");
  EXPECT_EQ(decoded->types[0].rolled_back, 1u);
  EXPECT_EQ(decoded->types[0].latency.count(), 101u);
  for (const double percent : {1.0, 50.0, 97.0, 99.0, 100.0}) {
    EXPECT_NEAR(decoded->types[0].latency.Percentile(percent), m.types[0].latency.Percentile(percent),
                m.types[0].latency.Percentile(percent) / 200)
        << percent;
  }
  EXPECT_EQ(decoded->aborted, m.aborted);
  EXPECT_EQ(decoded->ended_early, m.ended_early);
  EXPECT_EQ(decoded->cpu_ns, m.cpu_ns);
  EXPECT_EQ(decoded->measured_ns, m.measured_ns);
  EXPECT_EQ(decoded->unknown, 1u);
}

TEST(MeasurementTest, RejectsWhatIsNone) {
  for (const char* text :
       {"nonsense", "counts 1 2", "counts a b c d e f g", "h 1 2", "type t 1", "aborted x y"}) {
    EXPECT_FALSE(Measurement::Decode(text).ok()) << text;
  }
}

TEST(MeasurementTest, MergeAddsCountsAndTakesTheLongestTime) {
  Measurement all;
  all.Merge(Example());
  Measurement other = Example();
  other.measured_ns = kSecond;
  other.ended_early = "later";
  all.Merge(other);
  EXPECT_EQ(all.committed(), 380u);
  EXPECT_EQ(all.rolled_back(), 2u);
  EXPECT_EQ(all.aborts(), 18u);
  EXPECT_EQ(all.measured_ns, 2 * kSecond);
  EXPECT_EQ(all.types[1].latency.count(), 180u);
  EXPECT_THAT(all.ended_early, HasSubstr("region memory"));
}

Report ExampleReport() {
  Report r;
  r.workload = "tpcc";
  r.mode = "symmetric";
  r.nodes = r.replicas = 3;
  r.workers = 1;
  r.durability = "replicated";
  r.fabric = "shm";
  r.headline_type = "new_order";
  r.headline_name = "new_orders_per_second";
  r.extra = {{"warehouses", 12}};
  r.measured = Example();
  r.checks = {{"condition_1", true, ""}, {"replicas", false, "region 2 \"offset\" 64"}};
  return r;
}

TEST(ReportTest, JsonHasTheFieldsOfTheDesign) {
  const std::string json = ExampleReport().Json();
  for (const char* part : {"\"workload\": \"tpcc\"",
                           "\"seconds\": 2.000",
                           "\"replicas\": 3",
                           "\"nodes\": 3",
                           "\"workers\": 1",
                           "\"durability\": \"replicated\"",
                           "\"fabric\": \"shm\"",
                           "\"huge_pages\": false",
                           "\"transactions_per_second\": 95.000",
                           "\"new_orders_per_second\": 50.000",
                           "\"committed\": 190",
                           "\"lock_conflict\": 7",
                           "\"count\": 100",
                           "\"p50_us\": ",
                           "\"p95_us\": ",
                           "\"p99_us\": ",
                           "\"remote_read_share\": 0.100",
                           "\"distributed_commit_share\": 0.100",
                           "\"condition_1\": \"pass\"",
                           "\"replicas\": \"fail\"",
                           "\"warehouses\": 12",
                           "\"cpu_us_per_transaction\": 75.000"}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
  EXPECT_THAT(json, ::testing::Not(HasSubstr("tpmC")));
}

TEST(ReportTest, TableShowsFailuresAndWhyItEndedEarly) {
  const std::string table = ExampleReport().Table();
  EXPECT_THAT(table, HasSubstr("FAIL  replicas: region 2"));
  EXPECT_THAT(table, HasSubstr("consistency: 1 of 2 checks pass"));
  EXPECT_THAT(table, HasSubstr("ended early: RESOURCE_EXHAUSTED"));
  EXPECT_THAT(table, HasSubstr("new_orders_per_second: 50"));
  EXPECT_FALSE(ExampleReport().checks_passed());
}

TEST(ReportTest, CommasSeparateThousands) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(12345678), "12,345,678");
}

TEST(JsonWriterTest, EscapesAndNests) {
  JsonWriter json;
  json.BeginObject();
  json.Add("a\"b", "line\nend\\");
  json.BeginArray("list");
  json.Add("", uint64_t{1});
  json.Add("", true);
  json.End();
  json.BeginObject("empty");
  json.End();
  json.Add("nan", 0.0 / 0.0);
  json.End();
  EXPECT_EQ(
      json.Take(),
      "{\n  \"a\\\"b\": \"line\\u000aend\\\\\",\n  \"list\": [\n    1,\n    true\n  ],\n  \"empty\": {},\n"
      "  \"nan\": null\n}\n");
}

}  // namespace
}  // namespace furrow::bench
