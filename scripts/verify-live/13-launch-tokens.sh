#!/usr/bin/env bash
# Entry: 13. Client tokens of launches
# Does: Repeats one CreateFleet under one token: at once, with other parameters, after its machine ended, and
#   for the hours that are set; and repeats a call that failed because its template was missing.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_HOURS BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: Two launch templates and two machines with a tag of this run, all ended; one more when a token is
#   forgotten.
# Costs: A few small machines for minutes; with BULLPEN_VERIFY_HOURS, the time until then and one more machine
#   at the most.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly HOURS=${BULLPEN_VERIFY_HOURS:-0}

ids() { fleet_ids | sort | tr '\n' ' '; }

replay() { try fleet "$run" 1 on-demand "$2" --client-token "$run-$1"; }

repeats() {
  local one first again begun hour
  template "$run" "$(image al2023)" </dev/null >/dev/null
  one=$(one_type "$(first_subnet)")
  replay a "$one"
  observed first.code "$code $message"
  first=$(ids)
  observed first.ids "$first"
  begun=$SECONDS
  replay a "$one"
  again=$(ids)
  observed again_at_once "$code $again $message"
  expect "the same call at once" "$again" "$first"
  # Another number of machines is another launch.
  try fleet "$run" 2 on-demand "$one" --client-token "$run-a"
  observed other_parameters "$code $message"
  expect "other parameters under one token" "$code" IdempotentParameterMismatch
  ec2_kindly terminate-instances --instance-ids "${first%% *}" >/dev/null
  await_state "${first%% *}" terminated
  replay a "$one"
  again=$(ids)
  observed after_the_end "$code $again, $((SECONDS - begun)) s after the first; $message"
  expect "the same call after its machine ended" "$again" "$first"
  for hour in $(seq "$HOURS"); do
    wait_until "$begun" $((hour * 3600))
    replay a "$one"
    again=$(ids)
    observed "after_hours" "$hour $code $again $message"
    if [[ $again != "$first" ]]; then
      verdict differs "the token was forgotten between hour $((hour - 1)) and $hour"
      return
    fi
  done
  observed token_known_for_s "$((SECONDS - begun))"
}

# A launch creates its missing template, and repeats the call under the same token.
after_a_failure() {
  local one name="$run-late"
  one=$(one_type "$(first_subnet)")
  try fleet "$name" 1 on-demand "$one" --client-token "$run-b"
  observed no_template.code "$code $message"
  show_fleet no_template
  template "$name" "$(image al2023)" </dev/null >/dev/null
  try fleet "$name" 1 on-demand "$one" --client-token "$run-b"
  observed after_template.code "$code $message"
  show_fleet after_template
  if [[ $code == ok && -n $(ids) ]]; then
    verdict agrees "a launch that failed for its template succeeds under the same token"
  else
    verdict differs "a launch that failed for its template is not made under the same token"
  fi
}

ground
part "one token, several times" repeats
part "a token whose first call failed" after_a_failure
