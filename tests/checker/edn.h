// Histories as text, one EDN map a line, in the form that outside checkers of transaction histories read too:
//
//   {:index 0 :type :invoke :process 3 :f :txn :value [[:append :x 1] [:r :y nil]] :time 1000}
//   {:index 1 :type :ok :process 3 :f :txn :value [[:append :x 1] [:r :y [4 7]]] :time 2500}
//
//   :type    :invoke, then :ok (committed), :fail (aborted) or :info (unknown)
//   :process a number; lines of other processes (:nemesis) are skipped
//   :f       :txn, or for banks :transfer with :value {:from 0 :to 1 :amount 5} and :read with :value {0 10,
//   1 12} :value   [:append k v], [:w k v], [:inc k n], [:r k result]; a result is nil, a number or a vector.
//   Keys are numbers
//            from 0 up, keywords or strings
//   :time    nanoseconds
//
// An operation is two lines of the same process, between which the process has no other. A nil read of an :ok
// line found nothing; of another line it means that the result is not known.
#ifndef FURROW_TESTS_CHECKER_EDN_H_
#define FURROW_TESTS_CHECKER_EDN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/checker/history.h"

namespace furrow::checker {

std::string WriteEdn(const History& history);

// INVALID_ARGUMENT "line 12: ..." for text that is no such history. Fields that it does not know, tags before
// a map
// (#name{...}), blank lines and comments (;) are skipped. Without :time in any line, the order of the lines
// serves as the time.
absl::StatusOr<History> ParseEdn(std::string_view text);

// NOT_FOUND or UNKNOWN with the path and the system's reason when the file cannot be read or written.
absl::StatusOr<History> ReadHistoryFile(const std::string& path);
absl::Status WriteHistoryFile(const History& history, const std::string& path);

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_EDN_H_
