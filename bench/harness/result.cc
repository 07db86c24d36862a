#include "bench/harness/result.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/strings.h"
#include "bench/harness/json.h"

namespace furrow::bench {
namespace {

std::string CountOf(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
double Micros(Nanos ns) { return static_cast<double>(ns) / kMicrosecond; }

absl::Status BadLine(absl::string_view line) {
  return absl::InternalError(absl::StrCat("a benchmark process sent a result that is not one: '", line, "'"));
}

}  // namespace

std::string WithCommas(uint64_t value) {
  std::string digits = absl::StrCat(value);
  for (size_t place = digits.size(); place > 3;) {
    place -= 3;
    digits.insert(place, 1, ',');
  }
  return digits;
}

void Measurement::Merge(const Measurement& other) {
  if (types.size() < other.types.size()) types.resize(other.types.size());
  for (size_t i = 0; i < other.types.size(); ++i) {
    types[i].name = other.types[i].name;
    types[i].committed += other.types[i].committed;
    types[i].rolled_back += other.types[i].rolled_back;
    types[i].latency.Merge(other.types[i].latency);
  }
  for (const auto& [reason, count] : other.aborted) aborted[reason] += count;
  unknown += other.unknown;
  local_reads += other.local_reads;
  remote_reads += other.remote_reads;
  distributed += other.distributed;
  system_committed += other.system_committed;
  cpu_ns += other.cpu_ns;
  measured_ns = std::max(measured_ns, other.measured_ns);
  if (ended_early.empty()) ended_early = other.ended_early;
}

std::string Measurement::Encode() const {
  std::string out = absl::StrCat("counts ", unknown, " ", local_reads, " ", remote_reads, " ", distributed,
                                 " ", system_committed, " ", cpu_ns, " ", measured_ns, "\n");
  for (const auto& [reason, count] : aborted) absl::StrAppend(&out, "aborted ", reason, " ", count, "\n");
  for (const TypeResult& type : types) {
    absl::StrAppend(&out, "type ", type.name, " ", type.committed, " ", type.rolled_back, "\n");
    type.latency.ForEach(
        [&](Nanos value, uint64_t times) { absl::StrAppend(&out, "h ", value, " ", times, "\n"); });
  }
  if (!ended_early.empty()) absl::StrAppend(&out, "ended ", absl::BytesToHexString(ended_early), "\n");
  return out;
}

absl::StatusOr<Measurement> Measurement::Decode(std::string_view text) {
  Measurement m;
  for (const absl::string_view line : absl::StrSplit(Sv(text), '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    std::vector<uint64_t> numbers(words.size());
    const size_t first_number = words[0] == "counts" || words[0] == "h" ? 1 : 2;
    for (size_t i = first_number; i < words.size(); ++i) {
      if (!absl::SimpleAtoi(words[i], &numbers[i])) return BadLine(line);
    }
    if (words[0] == "counts" && words.size() == 8) {
      m.unknown = numbers[1];
      m.local_reads = numbers[2];
      m.remote_reads = numbers[3];
      m.distributed = numbers[4];
      m.system_committed = numbers[5];
      m.cpu_ns = numbers[6];
      m.measured_ns = static_cast<Nanos>(numbers[7]);
    } else if (words[0] == "aborted" && words.size() == 3) {
      m.aborted[std::string(words[1])] = numbers[2];
    } else if (words[0] == "type" && words.size() == 4) {
      m.types.push_back({std::string(words[1]), numbers[2], numbers[3], {}});
    } else if (words[0] == "h" && words.size() == 3 && !m.types.empty()) {
      m.types.back().latency.RecordMany(static_cast<Nanos>(numbers[1]), numbers[2]);
    } else if (words[0] == "ended" && words.size() == 2) {
      m.ended_early = absl::HexStringToBytes(words[1]);
    } else {
      return BadLine(line);
    }
  }
  return m;
}

uint64_t Measurement::committed() const {
  uint64_t sum = 0;
  for (const TypeResult& type : types) sum += type.committed;
  return sum;
}
uint64_t Measurement::rolled_back() const {
  uint64_t sum = 0;
  for (const TypeResult& type : types) sum += type.rolled_back;
  return sum;
}
uint64_t Measurement::aborts() const {
  uint64_t sum = 0;
  for (const auto& [reason, count] : aborted) sum += count;
  return sum;
}

double Report::PerSecond(uint64_t count) const {
  return measured.measured_ns == 0 ? 0 : static_cast<double>(count) / seconds();
}

double Report::headline() const {
  for (const TypeResult& type : measured.types) {
    if (type.name == headline_type) return PerSecond(type.committed);
  }
  return 0;
}

bool Report::checks_passed() const {
  return std::all_of(checks.begin(), checks.end(), [](const CheckResult& c) { return c.pass; });
}

std::string Report::Table() const {
  std::string out;
  absl::StrAppendFormat(&out, "\n%-14s %12s %10s %10s %10s %10s\n", workload, "committed", "per s", "p50",
                        "p95", "p99");
  for (const TypeResult& type : measured.types) {
    absl::StrAppendFormat(&out, "%-14s %12s %10s %10s %10s %10s\n", type.name, WithCommas(type.committed),
                          WithCommas(static_cast<uint64_t>(PerSecond(type.committed))),
                          FormatNanos(static_cast<double>(type.latency.Percentile(50))),
                          FormatNanos(static_cast<double>(type.latency.Percentile(95))),
                          FormatNanos(static_cast<double>(type.latency.Percentile(99))));
  }
  const uint64_t committed = measured.committed();
  absl::StrAppendFormat(&out, "%-14s %12s %10s\n\n", "all", WithCommas(committed),
                        WithCommas(static_cast<uint64_t>(PerSecond(committed))));
  if (!headline_name.empty()) {
    absl::StrAppendFormat(&out, "%s: %s\n", headline_name, WithCommas(static_cast<uint64_t>(headline())));
  }
  absl::StrAppendFormat(&out, "%.1f s, %s, %s, %s per process, %s per worker, %s, fabric %s, huge pages %s\n",
                        seconds(), CountOf(nodes, "node"), CountOf(replicas, "replica"),
                        CountOf(workers, "worker"), CountOf(terminals, "terminal"), durability, fabric,
                        huge_pages ? "on" : "off");
  if (!remark.empty()) absl::StrAppend(&out, remark, "\n");
  absl::StrAppendFormat(
      &out, "CPU of the benchmark's processes per transaction: %.1f us\n",
      committed == 0 ? 0.0 : Micros(static_cast<Nanos>(measured.cpu_ns)) / static_cast<double>(committed));
  absl::StrAppendFormat(
      &out, "remote reads %.2f %%, distributed commits %.2f %%, rolled back as demanded %s\n",
      100 * Share(measured.remote_reads, measured.remote_reads + measured.local_reads),
      100 * Share(measured.distributed, measured.system_committed), WithCommas(measured.rolled_back()));
  absl::StrAppendFormat(&out, "attempts aborted: %s (%.2f per 100 commits)", WithCommas(measured.aborts()),
                        100 * Share(measured.aborts(), committed));
  for (const auto& [reason, count] : measured.aborted)
    absl::StrAppend(&out, ", ", reason, " ", WithCommas(count));
  absl::StrAppend(&out, "\n");
  if (measured.unknown != 0) absl::StrAppend(&out, "of unknown outcome: ", measured.unknown, "\n");
  if (!measured.ended_early.empty()) absl::StrAppend(&out, "ended early: ", measured.ended_early, "\n");
  if (checks.empty()) return out;
  size_t passed = 0;
  for (const CheckResult& check : checks) passed += check.pass ? 1 : 0;
  absl::StrAppendFormat(&out, "consistency: %d of %d checks pass\n", passed, checks.size());
  for (const CheckResult& check : checks) {
    if (!check.pass) absl::StrAppendFormat(&out, "FAIL  %s: %s\n", check.name, check.detail);
  }
  return out;
}

std::string Report::Json() const {
  const Measurement& m = measured;
  JsonWriter json;
  json.BeginObject();
  json.Add("workload", workload);
  json.Add("mode", mode);
  json.Add("seconds", seconds());
  json.Add("replicas", replicas);
  json.Add("nodes", nodes);
  json.Add("workers", workers);
  json.Add("terminals", terminals);
  json.Add("durability", durability);
  json.Add("fabric", fabric);
  json.Add("huge_pages", huge_pages);
  json.Add("rate", rate);
  for (const auto& [name, value] : extra) json.Add(name, value);
  if (load_seconds > 0) json.Add("load_seconds", load_seconds);
  json.Add("transactions_per_second", PerSecond(m.committed()));
  if (!headline_name.empty()) json.Add(headline_name, headline());
  json.Add("committed", m.committed());
  json.Add("rolled_back", m.rolled_back());
  json.Add("unknown", m.unknown);
  json.BeginObject("aborted");
  for (const auto& [reason, count] : m.aborted) json.Add(reason, count);
  json.End();
  json.BeginObject("types");
  for (const TypeResult& type : m.types) {
    json.BeginObject(type.name);
    json.Add("count", type.committed);
    json.Add("rolled_back", type.rolled_back);
    json.Add("p50_us", Micros(type.latency.Percentile(50)));
    json.Add("p95_us", Micros(type.latency.Percentile(95)));
    json.Add("p99_us", Micros(type.latency.Percentile(99)));
    json.Add("max_us", Micros(type.latency.max()));
    json.End();
  }
  json.End();
  json.Add("remote_read_share", Share(m.remote_reads, m.remote_reads + m.local_reads));
  json.Add("distributed_commit_share", Share(m.distributed, m.system_committed));
  json.Add(
      "cpu_us_per_transaction",
      m.committed() == 0 ? 0.0 : Micros(static_cast<Nanos>(m.cpu_ns)) / static_cast<double>(m.committed()));
  if (!m.ended_early.empty()) json.Add("ended_early", m.ended_early);
  json.BeginObject("consistency");
  for (const CheckResult& check : checks) json.Add(check.name, check.pass ? "pass" : "fail");
  json.End();
  json.End();
  return json.Take();
}

}  // namespace furrow::bench
