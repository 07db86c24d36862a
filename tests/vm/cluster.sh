#!/usr/bin/env bash
# Sourced by the suites cluster*.sh: a cluster of three storage nodes over verbs at 10.77.0.1, .2 and .3, which its
# tests share, and compute members at 10.77.0.4. It lives until a test has ended it, or the VM ends.

dir=/tmp/furrow-cluster
export XDG_RUNTIME_DIR=/tmp  # for Unix sockets; the fabric needs none

# Starts node $1 with further flags. It is no job of this test's: the next ones use it.
start_node() {
  local n=$1
  shift
  mkdir -p "$dir/$n"
  setsid "$FURROW_BIN/furrow" node --id "$n" --dir "$dir/$n" --listen "10.77.0.$n:0" --memory 256M \
    --old-versions 8M --ready-file "$dir/$n/ready" "$@" </dev/null >"$dir/$n/log" 2>&1 &
  echo $! >"$dir/$n/pid"
  disown
}
await_node() {
  local i
  for i in {1..900}; do
    if [[ -e $dir/$1/ready ]]; then return 0; fi
    kill -0 "$(<"$dir/$1/pid")" 2>/dev/null || break
    sleep 0.1
  done
  echo "node $1 does not serve"
  tail -n 20 "$dir/$1/log"
  return 1
}
# What the nodes say, for who looks into a failure.
show_nodes() {
  local n
  for n in 1 2 3; do
    echo "node $n:"
    tail -n 6 $dir/$n/log | cut -c1-300
  done
}
# The cluster, which is there already if an earlier test has left it. Nobody has set its fabric. The lease is longer
# than what a busy host takes from the VM at a time.
need_cluster() {
  if [[ -e $dir/cluster ]] && "$FURROW_BIN/furrow" status --cluster $dir --json --interval 0s >/dev/null 2>&1; then
    return 0
  fi
  local n pid
  for pid in $(cat $dir/*/pid 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
  rm -rf $dir /dev/shm/furrow-*
  mkdir -p $dir
  start_node 1 --cluster-dir $dir --region-size 8M --lease 30s
  await_node 1
  for n in 2 3; do start_node $n --join $dir; done
  for n in 2 3; do await_node $n; done
}

# A benchmark as a compute member; its output is in $dir/bench, its result in $dir/result.
bench() {
  "$FURROW_BIN/furrow-bench" tpcc --cluster $dir --addresses 10.77.0.4 --warehouses 2 --scale 1 --warmup 0 \
    --json $dir/result "$@" >$dir/bench 2>&1
}
# The last run has committed something over verbs, and all of its checks hold.
bench_was_good() {
  grep -q '"fabric": "verbs"' $dir/result
  grep -q '"condition_12": "pass"' $dir/result
  fails grep -q '"fail"' $dir/result
  fails grep -q '"committed": 0,' $dir/result
  sed -n 's/^consistency: /note: TPC-C-like run over verbs: /p; s/^all  */note: committed, per second: /p' $dir/bench
}
# Data to run on, as an earlier test may have left it.
need_data() {
  if bench --seconds 1 --no-load || bench --seconds 1 --reload; then return 0; fi
  cat $dir/bench
  show_nodes
  return 1
}
# append PROCESS NAME ARGUMENT...: a process whose sessions append to lists of the run NAME; its history is in
# $dir/history.PROCESS.
append() {
  "$FURROW_BIN/furrow-append" --cluster $dir --listen 10.77.0.4:0 --process "$1" --name "$2" \
    --out "$dir/history.$1" "${@:3}" \
    >"$dir/append.$1" 2>&1
}
# Two processes at the same time, then one that reads all lists, judged as one history.
histories_are_serializable() {
  local first code=0
  append 1 whole --transactions "$1" --seed 1 &
  first=$!
  append 2 whole --transactions "$1" --seed 2 || code=$?
  wait $first || code=$?
  append 3 whole --transactions "$1" --read || code=$?
  if [[ $code != 0 ]]; then
    cat $dir/append.*
    show_nodes
    return 1
  fi
  "$FURROW_BIN/furrow-check" $dir/history.{1,2,3} >$dir/verdict || code=$?
  head -c 4000 $dir/verdict
  sed -n '1s/^/note: /p' $dir/verdict
  return $code
}

# await_line PATTERN FILE PID: until the process has written such a line.
await_line() {
  local i
  for i in {1..1200}; do
    if grep -q "$1" "$2" 2>/dev/null; then return 0; fi
    kill -0 "$3" 2>/dev/null || break
    sleep 0.1
  done
  echo "no line with '$1' came"
  cat "$2"
  return 1
}

# break_cluster COMMAND...: while a benchmark and sessions are at work, COMMAND takes node $victim away. Both end with
# an error in bounded time, the sessions say which node it is, and their history is without fault.
break_cluster() {
  local bench append i code
  rm -f $dir/bench $dir/append.1
  append 1 broken --transactions 1000000 --seconds 300 &
  append=$!
  await_line begins $dir/append.1 $append
  bench --no-load --seconds 300 &
  bench=$!
  await_line transactions/s $dir/bench $bench
  kill -0 $append
  "$@"
  local start=$SECONDS
  # Lease and retries, and what a busy host adds; the runs would have taken five minutes.
  for i in {1..900}; do
    if ! kill -0 $bench 2>/dev/null && ! kill -0 $append 2>/dev/null; then break; fi
    sleep 0.1
  done
  echo "note: both ended $((SECONDS - start)) s after the node was gone"
  for i in $bench $append; do
    if kill -0 "$i" 2>/dev/null; then
      echo "it does not end"
      return 1
    fi
  done
  code=0
  wait $append || code=$?
  cat $dir/append.1
  [[ $code == 3 ]]
  grep -Eq "node $victim(,| at) .*is lost" $dir/append.1
  code=0
  wait $bench || code=$?
  tail -n 25 $dir/bench
  grep -Eq '^(ended early: (UNAVAILABLE|UNKNOWN): |furrow-bench tpcc: .*(is gone|is lost))' $dir/bench
  "$FURROW_BIN/furrow-check" $dir/history.1 >$dir/verdict || { head -c 4000 $dir/verdict; return 1; }
}
