# net: veth2
# furrow doctor --peer between two processes on two devices: over the link as it is, and when no packet passes for a
# while. (Few lost packets are the contract's: on a busy host they use up the retries of large messages.)

limit=([self_test]=400 [packets_that_all_vanish]=300)

# Starts the doctor that serves at 10.77.0.1; $server is its process.
serve() {
  cd "$(mktemp -d)"
  "$FURROW_BIN/furrow" doctor --serve 10.77.0.1 "$@" >served 2>served.log &
  server=$!
  local i
  for i in {1..600}; do
    if grep -q 'serves at 10.77.0.1:4519 over verbs' served; then return 0; fi
    kill -0 $server || break
    sleep 0.1
  done
  echo "it does not serve"
  cat served served.log
  return 1
}
peer() { "$FURROW_BIN/furrow" doctor --peer 10.77.0.1 --address 10.77.0.2 >report 2>report.log; }
good() {
  peer || { cat report report.log served.log; return 1; }
  local check
  for check in connect payload order latency bandwidth; do
    grep -q "^ok *peer.$check" report || { cat report; return 1; }
  done
}

test_self_test() {
  serve --once
  good
  grep -E 'peer.(order|latency|bandwidth)' report | sed 's/^ok *peer\.[a-z]* */note: /'
  wait $server
}

# Longer than all retries: the test ends with an error, in bounded time. After it all is well again.
test_packets_that_all_vanish() {
  serve
  peer &
  local client=$! code=0 i
  for i in {1..600}; do
    if grep -q 'connected with node' report.log; then break; fi
    sleep 0.1
  done
  network disturb loss 100%
  wait $client || code=$?
  network calm
  if [[ $code != 1 ]]; then echo "the peer ended with $code"; cat report report.log; return 1; fi
  grep -E '^error *peer\.' report
  # The other side notices by itself, and serves the next one.
  for i in {1..600}; do
    if grep -q 'a peer was served' served.log; then break; fi
    sleep 0.1
  done
  good
}
