// furrow-bench fabric: what the raw fabric costs on this host, beside a plain memcpy of the same bytes in the
// same run. Initiator and target are two processes. This is the one workload that uses rdma/ directly: it
// measures the fabric and no database.
#ifndef FURROW_BENCH_FABRIC_BENCH_H_
#define FURROW_BENCH_FABRIC_BENCH_H_

#include <span>
#include <string_view>

namespace furrow::bench {

// Exit code of the subcommand; prints the table, and errors to standard error.
int RunFabricBench(std::span<const std::string_view> arguments);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_FABRIC_BENCH_H_
