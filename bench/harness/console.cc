#include "bench/harness/console.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"

namespace furrow::bench {

void Console::Print(std::string_view line) {
  Settle();
  std::fprintf(out_, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(out_);
}

void Console::Show(std::string line, Nanos interval_ns) {
  if (in_place_) {
    std::fprintf(out_, "\r\033[K%s", line.c_str());
    showing_ = true;
  } else {
    const Nanos now = clock_.Now();
    if (now - last_shown_ < interval_ns) return;
    last_shown_ = now;
    std::fprintf(out_, "%s\n", line.c_str());
  }
  std::fflush(out_);
}

void Console::Settle(bool erase) {
  last_shown_ = INT64_MIN / 2;
  if (!showing_) return;
  std::fputs(erase ? "\r\033[K" : "\n", out_);
  std::fflush(out_);
  showing_ = false;
}

std::string ProgressBar(std::string_view what, uint64_t done, uint64_t total, Nanos elapsed) {
  constexpr size_t kWidth = 30;
  const double share = total == 0 ? 0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const size_t filled = static_cast<size_t>(share * kWidth);
  return absl::StrFormat("%s  [%s%s]  %3d %%  %s of %s rows  %d s", Sv(what), std::string(filled, '#'),
                         std::string(kWidth - filled, '-'), static_cast<int>(share * 100), WithCommas(done),
                         WithCommas(total), elapsed / kSecond);
}

std::string LiveLine(Nanos elapsed, double seconds, const Measurement& live, std::string_view headline_type,
                     std::string_view headline_words) {
  uint64_t headline = 0;
  Histogram latency;
  for (const TypeResult& type : live.types) {
    if (type.name == headline_type) headline = type.committed;
    latency.Merge(type.latency);
  }
  auto per_second = [seconds](uint64_t count) {
    return WithCommas(static_cast<uint64_t>(static_cast<double>(count) / seconds));
  };
  std::string line = absl::StrFormat("%4d s", elapsed / kSecond);
  if (!headline_words.empty())
    absl::StrAppendFormat(&line, "  %8s %s/s", per_second(headline), Sv(headline_words));
  const uint64_t committed = live.committed();
  absl::StrAppendFormat(
      &line, "  %8s transactions/s  aborts %.2f %%  p99 %s", per_second(committed),
      committed == 0 ? 0.0 : 100.0 * static_cast<double>(live.aborts()) / static_cast<double>(committed),
      FormatNanos(static_cast<double>(latency.Percentile(99))));
  return line;
}

}  // namespace furrow::bench
