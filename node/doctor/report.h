// How the doctor's findings are shown.
#ifndef FURROW_NODE_DOCTOR_REPORT_H_
#define FURROW_NODE_DOCTOR_REPORT_H_

#include <string>
#include <vector>

#include "node/doctor/checks.h"

namespace furrow::node {

// A line for each finding, one more for advice, and a summary at the end.
std::string ReportText(const HostFacts& facts, const Plan& plan, const std::vector<Finding>& findings);
// The form that docs/operations.md gives.
std::string ReportJson(const HostFacts& facts, const Plan& plan, const std::vector<Finding>& findings);
// 1 if any finding is an error, else 0.
int ExitCode(const std::vector<Finding>& findings);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_REPORT_H_
