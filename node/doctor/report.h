// How the doctor's findings are shown.
#ifndef FURROW_NODE_DOCTOR_REPORT_H_
#define FURROW_NODE_DOCTOR_REPORT_H_

#include <string>
#include <vector>

#include "node/doctor/checks.h"

namespace furrow::node {

// What the findings are about: a line for people, and fields of the JSON object (each "key": value, with a
// comma behind it).
struct Subject {
  std::string line;
  std::string fields;
};
Subject HostSubject(const HostFacts& facts, const Plan& plan);
Subject PeerSubject(const HostFacts& facts, const std::string& endpoint);

// The subject, a line for each finding, one more for advice, and a summary at the end.
std::string ReportText(const Subject& subject, const std::vector<Finding>& findings);
// The form that docs/operations.md gives.
std::string ReportJson(const Subject& subject, const std::vector<Finding>& findings);
// 1 if any finding is an error, else 0.
int ExitCode(const std::vector<Finding>& findings);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_REPORT_H_
