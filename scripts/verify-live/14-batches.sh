#!/usr/bin/env bash
# Entry: 14. Several machines in one call
# Does: Starts several stopped machines of which one cannot start, because its type was changed to one without
#   a quota; stops running ones together with an ended and an unknown one; starts, tags and ends with an
#   unknown one among them; notes whether all are refused if one is, and which ids a message names.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_COUNT BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: A few machines with a tag of this run, all ended.
# Costs: As many small machines as BULLPEN_VERIFY_COUNT says, or four, for about fifteen minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly COUNT=${BULLPEN_VERIFY_COUNT:-4} UNKNOWN=i-0123456789abcdef0

states() {
  ec2_kindly describe-instances --instance-ids "$@" |
    jq -c '[.Reservations[].Instances[] | {(.InstanceId): .State.Name}] | add'
}
named() { grep -oE 'i-[0-9a-f]+' <<<"$message" | sort -u | tr '\n' ' ' || true; }

# Checks the answer to a call about several machines of which a single one is the reason.
refused() {
  local what=$1 wanted=$2 guilty=$3
  observed "$what" "$code $message"
  observed "$what.names" "$(named)"
  expect "$what" "$code" "$wanted"
  if [[ $(named) == "$guilty " ]]; then
    verdict agrees "$what: the message names the guilty machine, and no other"
  else
    verdict differs "$what: the message does not name $guilty alone"
  fi
}

stops() {
  local ids ended
  read -r -a ids <"$work/ids"
  ended=${ids[0]}
  ec2_kindly terminate-instances --instance-ids "$ended" >/dev/null
  await_state "$ended" terminated
  try ec2 stop-instances --instance-ids "${ids[@]}"
  refused "stop with an ended one" IncorrectInstanceState "$ended"
  observed stop.states "$(states "${ids[@]}")"
  try ec2 stop-instances --instance-ids "${ids[@]:1}" "$UNKNOWN"
  refused "stop with an unknown one" InvalidInstanceID.NotFound "$UNKNOWN"
  sleep 5
  if is_in_state "${ids[1]}" running; then
    verdict agrees "a refused stop stops none"
  else
    verdict differs "a refused stop stopped others"
  fi
  try ec2 create-tags --resources "${ids[@]:1}" "$UNKNOWN" --tags Key=bullpen-verify-seen,Value=true
  refused "tag with an unknown one" InvalidInstanceID.NotFound "$UNKNOWN"
  ec2_kindly stop-instances --instance-ids "${ids[@]:1}" >/dev/null
}

# A type with a quota of 0 cannot start, for certain and for free.
starts() {
  local ids one bad quota
  read -r -a ids <"$work/ids"
  ids=("${ids[@]:1}")
  for one in "${ids[@]}"; do await_state "$one" stopped; done
  try ec2 start-instances --instance-ids "${ids[@]}" "$UNKNOWN"
  refused "start with an unknown one" InvalidInstanceID.NotFound "$UNKNOWN"
  quota=$(aws service-quotas get-service-quota --service-code ec2 --quota-code L-417A185B --output json |
    jq .Quota.Value)
  observed quota_of_P "$quota"
  if [[ $quota != 0 && $quota != 0.0 ]]; then
    verdict undecided "the quota for P instances is not 0 here, so that one could start"
    return
  fi
  bad=${ids[0]}
  ec2 modify-instance-attribute --instance-id "$bad" --instance-type Value=p3.2xlarge
  try ec2 start-instances --instance-ids "${ids[@]}"
  observed start_with_one_that_cannot "$code $message"
  sleep 5
  observed start.states "$(states "${ids[@]}")"
  if ! grep -q "(\"$code\"," "$here/../../crates/aws/src/ec2/answers.rs"; then
    verdict differs "a start without capacity is answered with $code, which answers.rs does not list"
  fi
  if is_in_state "${ids[1]}" stopped; then
    verdict agrees "a start is refused for all if for one"
  else
    verdict differs "the others start although one cannot"
  fi
}

# Bullpen describes machines by a filter, which skips unknown ids. The tag takes another value.
filters() {
  local ids some
  read -r -a ids <"$work/ids"
  for some in 199 200; do
    # shellcheck disable=SC2046 # one word for each id
    try ec2 describe-instances --filters "Name=tag:bullpen-verify,Values=$run" \
      "Name=instance-id,Values=$(printf '%s,' "${ids[0]}" $(seq -f 'i-0123456789abc%04g' 2 "$some") | sed 's/,$//')"
    observed "filter_of_$some" "$code $(jq '[.Reservations[]?.Instances[]] | length' <<<"${answer:-"{}"}") $message"
    ((some == 199)) || continue
    expect "a filter of 199 ids beside the tag" "$code" ok
    expect "machines that such a filter finds" \
      "$(jq '[.Reservations[].Instances[]] | length' <<<"${answer:-'{"Reservations": []}'}")" 1
  done
}

ends() {
  local ids
  read -r -a ids <"$work/ids"
  try ec2 terminate-instances --instance-ids "${ids[@]}" "$UNKNOWN"
  refused "end with an unknown one" InvalidInstanceID.NotFound "$UNKNOWN"
  sleep 5
  observed end.states "$(states "${ids[@]}")"
}

launch() {
  local ids one
  machines "$COUNT" </dev/null | paste -sd ' ' >"$work/ids"
  read -r -a ids <"$work/ids"
  for one in "${ids[@]}"; do await_state "$one" running; done
}

ground
part "some machines" launch
part "filters" filters
part "stops" stops
part "starts" starts
part "ends" ends
