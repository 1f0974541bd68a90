#!/usr/bin/env bash
# Entry: 11. EC2 as the test EC2 plays it
# Does: Requests fleets with a missing subnet beside an existing one, and with requirements that no type
#   matches; stops a pending machine; ends a machine twice; notes how long a new id stays unknown.
# Tools: aws python3
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: A launch template and up to four machines with a tag of this run, all ended.
# Costs: A few small machines for minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly NOWHERE=subnet-0123456789abcdef0

make_template() {
  template "$run" "$(image al2023)" </dev/null >/dev/null
}

bad_subnet() {
  local both
  both=$(jq -nc --argjson good "$(one_type "$(first_subnet)")" --arg bad "$NOWHERE" \
    '$good + [$good[0] + {SubnetId: $bad}]')
  try fleet "$run" 1 on-demand "$both"
  observed bad_subnet.code "$code $message"
  show_fleet bad_subnet
  expect "a bad subnet beside a good one" "$code" ok
  try fleet "$run" 1 on-demand "$(jq -c '.[1:]' <<<"$both")"
  observed only_a_bad_subnet.code "$code $message"
  show_fleet only_a_bad_subnet
  if grep -q InvalidSubnetID.NotFound <<<"$code $answer"; then
    verdict agrees "a bad subnet alone is named by InvalidSubnetID.NotFound"
  else
    verdict differs "a bad subnet alone is answered with another code"
  fi
}

nothing_matches() {
  try fleet "$run" 1 on-demand \
    "$(first_subnet | overrides '{"VCpuCount": {"Min": 1, "Max": 1}, "MemoryMiB": {"Min": 4000000}}')"
  observed nothing_matches.code "$code $message"
  show_fleet nothing_matches
  if [[ $code != ok ]]; then
    verdict agrees "requirements that nothing matches refuse the whole call"
  else
    verdict differs "requirements that nothing matches are an answer, with errors or without"
  fi
}

# Seconds until a call about a new id is not refused any more.
known_to() {
  local name=$1 begun=$2
  shift 2
  while true; do
    try "$@"
    if [[ $code != InvalidInstanceID.NotFound && $code != InvalidID ]]; then break; fi
    (($(now_ms) - begun < 120000)) || break
  done
  observed "new_id.$name" "$code after $(($(now_ms) - begun)) ms"
}

new_id() {
  local id begun was
  try fleet "$run" 1 on-demand "$(one_type "$(first_subnet)")"
  id=$(fleet_ids | head -n 1)
  begun=$(now_ms)
  known_to tag "$begun" ec2 create-tags --resources "$id" --tags Key=bullpen-verify-seen,Value=true
  known_to describe "$begun" ec2 describe-instances --instance-ids "$id"
  try ec2 stop-instances --instance-ids "$id"
  was=$(jq -r '.StoppingInstances[0].PreviousState.Name' <<<"${answer:-"{}"}")
  observed stop_at_once "$code from state $was $message"
  if [[ $code == ok && $was != pending ]]; then
    verdict undecided "the machine was $was before it could be stopped while pending"
  else
    expect "a stop of a machine that is pending" "$code" IncorrectInstanceState
  fi
  known_to terminate "$begun" ec2 terminate-instances --instance-ids "$id"
  try ec2 terminate-instances --instance-ids "$id"
  observed second_end "$code $(jq -c '.TerminatingInstances[0]' <<<"$answer")"
  expect "ending what is ending" "$code" ok
  try ec2 terminate-instances --instance-ids i-0123456789abcdef0
  observed end_of_unknown "$code $message"
  expect "ending what was never there" "$code" InvalidInstanceID.NotFound
}

ground
part "a launch template" make_template
part "a subnet that is not there" bad_subnet
part "requirements that nothing matches" nothing_matches
part "an id that is new" new_id
