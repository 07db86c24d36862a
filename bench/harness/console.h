// Console: what a benchmark shows while it runs: on a terminal one line that is rewritten in place, elsewhere
// lines one after another, rarely enough for a log. Owner: one thread.
#ifndef FURROW_BENCH_HARNESS_CONSOLE_H_
#define FURROW_BENCH_HARNESS_CONSOLE_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "bench/harness/result.h"

namespace furrow::bench {

class Console {
 public:
  // `in_place`: whether `out` is a terminal. `out` outlives the console.
  Console(std::FILE* out, bool in_place, const Clock& clock)
      : out_(out), in_place_(in_place), clock_(clock) {}
  ~Console() { Settle(); }

  // A line that stays.
  void Print(std::string_view line);
  // The line of the moment; on something else than a terminal at most one per `interval_ns`.
  void Show(std::string line, Nanos interval_ns);
  // Ends the line of the moment: it stays, or goes if `erase`.
  void Settle(bool erase = false);

 private:
  std::FILE* const out_;
  const bool in_place_;
  const Clock& clock_;
  bool showing_ = false;
  Nanos last_shown_ = INT64_MIN / 2;
};

// "loading  [#######-------------]  35 %  1,234,567 of 3,456,789 rows  12 s"
std::string ProgressBar(std::string_view what, uint64_t done, uint64_t total, Nanos elapsed);
// "  12 s   8,214 new orders/s   18,250 transactions/s   aborts 1.2 %   p99 2.31ms": of one second of all
// processes.
std::string LiveLine(Nanos elapsed, double seconds, const Measurement& live, std::string_view headline_type,
                     std::string_view headline_words);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_CONSOLE_H_
