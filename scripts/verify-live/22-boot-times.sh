#!/usr/bin/env bash
# Entry: 22. How long machines take to come
# Does: Measures a cold launch and a start of a stopped machine, from the call to the first service; then,
#   with a stack, how long `bullpen provision` takes cold and with a machine that is warm.
# Tools: aws python3
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_ROUNDS BULLPEN_VERIFY_PROVISION BULLPEN_VERIFY_RELEASE BULLPEN_VERIFY_SUBNETS
#   BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: A machine with a tag of this run for each round, ended; with BULLPEN_VERIFY_PROVISION, what that
#   command launches, which BULLPEN_VERIFY_RELEASE gives back and the stack ends when idle.
# Costs: A small machine for each round, for some minutes; the stack's machines.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly ROUNDS=${BULLPEN_VERIFY_ROUNDS:-3}

# Every boot writes its time to the console. Both clocks are set over the network, so some milliseconds are noise.
script() {
  cat <<'SCRIPT'
cat >/etc/systemd/system/bullpen-tell.service <<'U'
[Unit]
Description=tells the console that it is up
Wants=network-online.target
After=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'echo "bullpen-verify: up_$(cat /proc/sys/kernel/random/boot_id)=$(date +%%s%%3N)" >/dev/console'
[Install]
WantedBy=multi-user.target
U
systemctl enable bullpen-tell.service
systemctl start bullpen-tell.service
SCRIPT
}

ups() { told "$1" 2>/dev/null | grep -c '^up_' || true; }
has_come_up() { (($(ups "$1") >= $2)); }
# Milliseconds from a moment to the last time on a machine's console.
since() {
  local up
  up=$(told "$1" | sed -n 's/^up_[^=]*=//p' | sort -n | tail -n 1)
  echo $((up - $2))
}

times() {
  local round id begun
  for round in $(seq "$ROUNDS"); do
    begun=$(now_ms)
    id=$(script | machines 1)
    observed "cold.answered_ms" "$(($(now_ms) - begun))"
    await_state "$id" running
    within 300 has_come_up "$id" 1
    observed "cold.up_ms" "$(since "$id" "$begun") in round $round"
    ec2_kindly stop-instances --instance-ids "$id" >/dev/null
    await_state "$id" stopped
    begun=$(now_ms)
    ec2_kindly start-instances --instance-ids "$id" >/dev/null
    await_state "$id" running
    # A console may have lost the lines from before the stop.
    if within 300 has_come_up "$id" 1 && (($(since "$id" "$begun") > 0)); then
      observed "stopped.up_ms" "$(since "$id" "$begun") in round $round"
    fi
    ec2_kindly terminate-instances --instance-ids "$id" >/dev/null
  done
  verdict agrees "no figure is assumed; copy these to docs/benchmarks.md with type, image and region"
}

# The times of the operator's own commands, cold and warm.
provisioned() {
  local begun kind
  if [[ -z ${BULLPEN_VERIFY_PROVISION:-} || -z ${BULLPEN_VERIFY_RELEASE:-} ]]; then
    verdict undecided "BULLPEN_VERIFY_PROVISION and BULLPEN_VERIFY_RELEASE name no commands"
    return
  fi
  later bash -c "$BULLPEN_VERIFY_RELEASE"
  for kind in cold warm warm; do
    begun=$(now_ms)
    bash -c "$BULLPEN_VERIFY_PROVISION"
    observed "provision.$kind.ms" "$(($(now_ms) - begun))"
    bash -c "$BULLPEN_VERIFY_RELEASE"
    # A released machine advertises itself when its runner has ended.
    sleep 30
  done
  verdict agrees "no figure is assumed; the second and third are to be far below the first"
}

ground
part "EC2 alone" times
part "bullpen provision" provisioned
