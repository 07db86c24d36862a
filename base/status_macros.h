// Propagation of absl::Status. Inside a coroutine use the CO_ forms.
#ifndef FURROW_BASE_STATUS_MACROS_H_
#define FURROW_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define FURROW_CONCAT_INNER_(a, b) a##b
#define FURROW_CONCAT_(a, b) FURROW_CONCAT_INNER_(a, b)

#define FURROW_RETURN_IF_ERROR_IMPL_(ret, status, expr) \
  do {                                                  \
    ::absl::Status status = (expr);                     \
    if (ABSL_PREDICT_FALSE(!status.ok())) ret status;   \
  } while (false)
#define FURROW_ASSIGN_OR_RETURN_IMPL_(ret, tmp, lhs, expr)        \
  auto tmp = (expr);                                              \
  if (ABSL_PREDICT_FALSE(!tmp.ok())) ret std::move(tmp).status(); \
  lhs = std::move(tmp).value()

#define FURROW_RETURN_IF_ERROR(expr) \
  FURROW_RETURN_IF_ERROR_IMPL_(return, FURROW_CONCAT_(furrow_status_, __LINE__), expr)
#define FURROW_ASSIGN_OR_RETURN(lhs, expr) \
  FURROW_ASSIGN_OR_RETURN_IMPL_(return, FURROW_CONCAT_(furrow_value_, __LINE__), lhs, expr)
#define FURROW_CO_RETURN_IF_ERROR(expr) \
  FURROW_RETURN_IF_ERROR_IMPL_(co_return, FURROW_CONCAT_(furrow_status_, __LINE__), expr)
#define FURROW_CO_ASSIGN_OR_RETURN(lhs, expr) \
  FURROW_ASSIGN_OR_RETURN_IMPL_(co_return, FURROW_CONCAT_(furrow_value_, __LINE__), lhs, expr)

#endif  // FURROW_BASE_STATUS_MACROS_H_
