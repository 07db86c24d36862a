// The checks of `furrow doctor`: each looks at the facts of a host and at the plan for it, and says what it
// found. Pure functions, in any order.
#ifndef FURROW_NODE_DOCTOR_CHECKS_H_
#define FURROW_NODE_DOCTOR_CHECKS_H_

#include <string>
#include <vector>

#include "node/doctor/host_facts.h"
#include "node/doctor/plan.h"

namespace furrow::node {

enum class Level { kOk, kWarning, kError };
const char* LevelName(Level level);  // "ok", "warning", "error"

struct Finding {
  Level level = Level::kOk;
  std::string check;   // "rdma.gids"
  std::string found;   // what is
  std::string advice;  // what to do; empty when it is ok
};

// Where a check puts what it finds.
class Findings {
 public:
  explicit Findings(std::string check) : check_(std::move(check)) {}
  void Ok(std::string found) { all_.push_back({Level::kOk, check_, std::move(found), ""}); }
  void Warning(std::string found, std::string advice) {
    all_.push_back({Level::kWarning, check_, std::move(found), std::move(advice)});
  }
  void Error(std::string found, std::string advice) {
    all_.push_back({Level::kError, check_, std::move(found), std::move(advice)});
  }
  std::vector<Finding> Take() { return std::move(all_); }

 private:
  std::string check_;
  std::vector<Finding> all_;
};

using Check = void (*)(const HostFacts& facts, const Plan& plan, Findings* findings);

// check_devices.cc
void CheckDevices(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckPorts(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckGids(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckMtu(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckCapacity(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckDeviceNuma(const HostFacts& facts, const Plan& plan, Findings* findings);
// check_congestion.cc
void CheckCongestion(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckCounters(const HostFacts& facts, const Plan& plan, Findings* findings);
// check_memory.cc
void CheckLockedMemory(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckMemory(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckMemoryDirectory(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckHugePages(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckMappings(const HostFacts& facts, const Plan& plan, Findings* findings);
// check_host.cc
void CheckProcessors(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckRealtime(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckClock(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckModules(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckContainer(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckDescriptors(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckStateDirectory(const HostFacts& facts, const Plan& plan, Findings* findings);
void CheckListen(const HostFacts& facts, const Plan& plan, Findings* findings);

// All of them, in the order in which they are printed.
std::vector<Finding> Examine(const HostFacts& facts, const Plan& plan);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_CHECKS_H_
