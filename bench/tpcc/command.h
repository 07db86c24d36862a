// furrow-bench tpcc.
#ifndef FURROW_BENCH_TPCC_COMMAND_H_
#define FURROW_BENCH_TPCC_COMMAND_H_

#include <span>
#include <string_view>

namespace furrow::bench::tpcc {

// What `main` returns: 0 if the benchmark ran and the consistency checks that were asked for hold; 1 if not;
// 2 for wrong flags. Errors are one sentence on standard error.
int TpccCommand(std::span<const std::string_view> arguments);

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_COMMAND_H_
