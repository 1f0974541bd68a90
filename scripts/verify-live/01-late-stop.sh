#!/usr/bin/env bash
# Entry: 1. A stop request delayed beyond its `until`
# Does: Launches a machine, signs a stop for it, starts the machine again meanwhile, and sends the held
#   request at rising delays; notes from when on EC2 refuses it.
# Tools: aws python3
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_DELAYS BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: One machine with a tag of this run, started and stopped several times, and ended.
# Costs: One small machine and its disk for up to an hour.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
source "$here/lib/credentials.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

# Seconds after signing; rising.
read -r -a delays <<<"${BULLPEN_VERIFY_DELAYS:-20 120 280 320 600 890 930 1200}"

# Whether the machine leaves `running` within a while after EC2 accepted the request.
stops() {
  local _
  for _ in $(seq 10); do
    is_in_state "$1" running || return 0
    sleep 2
  done
  return 1
}

again() {
  await_state "$1" stopped
  ec2_kindly start-instances --instance-ids "$1" >/dev/null
  await_state "$1" running
}

late_stop() {
  local id signed_at delay sent refused=""
  credentials
  id=$(machines 1 </dev/null)
  await_state "$id" running
  signed_at=$SECONDS
  signed sign StopInstances "InstanceId.1=$id" >"$work/stop.json"
  # The same as after a stop, when a worker has claimed and started the machine since.
  ec2_kindly stop-instances --instance-ids "$id" >/dev/null
  again "$id"
  observed started_again_after_s "$((SECONDS - signed_at))"
  for delay in "${delays[@]}"; do
    wait_until "$signed_at" "$delay"
    sent=$(signed send <"$work/stop.json")
    observed "sent_after_s" "$((SECONDS - signed_at)) $(jq -c . <<<"$sent")"
    if [[ $(jq -r .code <<<"$sent") != ok ]]; then
      refused=$((SECONDS - signed_at))
      break
    fi
    if stops "$id"; then
      observed "stopped_by_late_request" "after $((SECONDS - signed_at)) s"
      again "$id"
    fi
  done
  if [[ -n $refused ]]; then
    verdict agrees "a stop that is late enough is refused; at $refused s it was"
  else
    verdict differs "every delay up to ${delays[-1]} s was accepted"
  fi
}

ground
part "a stop that is held back" late_stop
