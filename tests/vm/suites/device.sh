# net: dummy
# The device itself, without a line of rdma/: does the VM work?

test_device() { "$FURROW_BIN/vm_device_test" --gtest_brief=1; }

# Also: does AddressSanitizer work here, and do leaks show?
test_device_under_asan() { "$FURROW_ASAN_BIN/vm_device_test" --gtest_brief=1 --gtest_filter=-*SaysWhat*; }

# The tools that latencies are compared with.
perftest() {
  # A busy host can spoil the calibration of their clock, which makes a latency "inf" or 0.
  local tries=${tries:-3} tool=$1
  shift
  "$tool" -d rxe0 -F -x 1 -n 200 "$@" >server.log 2>&1 &
  local server=$!
  await_port 18515
  "$tool" -d rxe0 -F -x 1 -n 200 "$@" 127.0.0.1 >client.log 2>&1 || { cat server.log client.log; return 1; }
  wait $server || { cat server.log client.log; return 1; }
  # Column 5 is the typical latency in microseconds of the row that begins with the number of bytes.
  local latency
  latency=$(awk '$1 ~ /^[0-9]+$/ && $2 == 200 {print $5}' client.log)
  [[ -n $latency ]] || { cat client.log; return 1; }
  if [[ $latency =~ ^(inf|0\.0*|-?nan)$ ]] && ((tries > 1)); then
    tries=$((tries - 1)) perftest "$tool" "$@"
  else
    echo "note: $tool $*: typically $latency us"
  fi
}

test_perftest() {
  cd "$(mktemp -d)"
  perftest ib_read_lat -s 8
  perftest ib_write_lat -s 8
  perftest ib_send_lat -s 8
}
