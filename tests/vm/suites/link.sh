# net: veth2
# Two devices with a link between them, as it is and when it is bad.

test_device() { "$FURROW_BIN/vm_device_test" --gtest_brief=1; }

test_device_with_loss() {
  network disturb loss 3%
  "$FURROW_BIN/vm_device_test" --gtest_brief=1 --gtest_filter=-*SaysWhat*
}
