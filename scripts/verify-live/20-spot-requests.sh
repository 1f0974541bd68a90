#!/usr/bin/env bash
# Entry: 20. Spot requests of an instant fleet
# Does: Gets one spot machine by an instant fleet, reads its request, tries to stop it, ends it, and waits
#   for a possible replacement.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_IMAGE
# Touches: A launch template and one spot machine with a tag of this run, ended.
# Costs: One spot machine of two vCPUs for a few minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

# How long to wait for a replacement after the end.
readonly QUIET_S=300

requests() {
  ec2_kindly describe-spot-instance-requests --filters "Name=instance-id,Values=$1" |
    jq -c '[.SpotInstanceRequests[] | {Type, State, Status: .Status.Code}]'
}
alive() {
  ec2_kindly describe-instances --filters "Name=tag:bullpen-verify,Values=$run" \
    Name=instance-state-name,Values=pending,running | jq '[.Reservations[].Instances[]] | length'
}

one_time() {
  local id
  template "$run" "$(image al2023)" </dev/null >/dev/null
  try fleet "$run" 1 spot "$(subnets | overrides '{"AllowedInstanceTypes": ["t3*", "m5*", "m6*", "c5*", "c6*"]}')" \
    --spot-options AllocationStrategy=price-capacity-optimized,InstanceInterruptionBehavior=terminate
  observed launch "$code $message"
  show_fleet launch
  id=$(fleet_ids | head -n 1)
  if [[ -z $id ]]; then
    verdict undecided "no spot machine came"
    return
  fi
  await_state "$id" running
  observed while_running "$(requests "$id")"
  expect "the kind of its request" "$(requests "$id" | jq -r '.[0].Type // "none"')" one-time
  try ec2 stop-instances --instance-ids "$id"
  observed stop "$code $message"
  expect "a stop of a spot machine" "$code" UnsupportedOperation
  ec2_kindly terminate-instances --instance-ids "$id" >/dev/null
  await_state "$id" terminated
  observed after_the_end "$(requests "$id")"
  sleep "$QUIET_S"
  observed later "$(requests "$id")"
  expect "machines that came in its place" "$(alive)" 0
  expect "requests that are still open" \
    "$(requests "$id" | jq '[.[] | select(.State == "open" or .State == "active")] | length')" 0
}

ground
part "a spot machine and its request" one_time
