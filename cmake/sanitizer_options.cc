// Run-time options of the sanitizers, compiled into every sanitized executable, so that it behaves the same
// however it is started. ASAN_OPTIONS, UBSAN_OPTIONS and TSAN_OPTIONS still win.
extern "C" {
__attribute__((used, visibility("default"))) const char* __asan_default_options() {
  return "detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1"
         ":external_symbolizer_path=/usr/bin/llvm-symbolizer-19";
}
__attribute__((used, visibility("default"))) const char* __ubsan_default_options() {
  return "print_stacktrace=1:halt_on_error=1:external_symbolizer_path=/usr/bin/llvm-symbolizer-19";
}
// gRPC and Abseil come compiled without ThreadSanitizer: their locks are invisible, so calls that they make
// into libc are not judged.
__attribute__((used, visibility("default"))) const char* __tsan_default_options() {
  return "halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1"
         ":external_symbolizer_path=/usr/bin/llvm-symbolizer-19";
}
}
