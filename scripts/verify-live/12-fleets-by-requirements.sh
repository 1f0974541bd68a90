#!/usr/bin/env bash
# Entry: 12. Fleets by requirements: what is accepted, and what an answer says
# Does: Requests instant fleets by requirements as Bullpen does: without price protection, with 400 types, of
#   types whose quota is 0, of types that the zone lacks, and of types that the operator names as short; notes
#   codes, and the types and subnets in the answers.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SHORT_TYPES BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_IMAGE
# Touches: A launch template and up to four machines with a tag of this run, all ended.
# Costs: Up to three machines of two vCPUs for minutes; one more for each type in BULLPEN_VERIFY_SHORT_TYPES
#   that is not short after all.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

# The codes that mean a shortage in the code.
is_known_shortage() { grep -q "(\"$1\"," "$here/../../crates/aws/src/ec2/answers.rs"; }

make_template() { template "$run" "$(image al2023)" </dev/null >/dev/null; }

# Every error of the last answer: is its code known, and does it name a type?
judge_errors() {
  local one known unnamed
  if [[ $(jq '.Errors | length' <<<"${answer:-"{}"}") == 0 ]]; then
    verdict undecided "$1: no errors came, so their shape was not seen"
    return
  fi
  for one in $(jq -r '[.Errors[].ErrorCode] | unique[]' <<<"$answer"); do
    known=differs
    if is_known_shortage "$one"; then known=agrees; fi
    verdict "$known" "$1: the code $one, against the list in answers.rs"
  done
  unnamed=$(jq '[.Errors[] | select(.LaunchTemplateAndOverrides.Overrides.InstanceType == null)] | length' \
    <<<"$answer")
  observed "$1.errors_without_a_type" "$unnamed of $(jq '.Errors | length' <<<"$answer")"
  if ((unnamed == 0)); then
    verdict agrees "$1: every error names its instance type"
  else
    verdict differs "$1: some errors name no instance type, so that shortage cannot be avoided by type"
  fi
}

plain() {
  local usage
  for usage in on-demand spot; do
    try fleet "$run" 1 "$usage" "$(subnets | overrides '{"AllowedInstanceTypes": ["t3*", "m5*"]}')"
    observed "plain.$usage.code" "$code $message"
    show_fleet "plain.$usage"
    expect "$usage without price protection (999999)" "$code" ok
    if jq -e '.Instances[0] | .AvailabilityZone // .SubnetId // .LaunchTemplateAndOverrides.Overrides.SubnetId' \
      <<<"${answer:-"{}"}" >/dev/null; then
      verdict agrees "$usage: an answer says where its machines are"
    else
      verdict differs "$usage: an answer does not say where its machines are"
    fi
  done
}

# As many types as EC2 is said to take, real ones first.
many_types() {
  local types
  types=$(ec2_kindly describe-instance-type-offerings |
    jq -c '[.InstanceTypeOfferings[].InstanceType] | unique | sort_by(if startswith("t3") then 0 else 1 end, .) |
      .[:400] | {AllowedInstanceTypes: .}')
  observed many_types.count "$(jq '.AllowedInstanceTypes | length' <<<"$types")"
  try fleet "$run" 1 on-demand "$(first_subnet | overrides "$types")"
  observed many_types.code "$code $message"
  show_fleet many_types
  expect "a list of 400 types" "$code" ok
}

# A quota of 0 is a shortage that costs nothing to see.
no_quota() {
  local quota
  quota=$(aws service-quotas get-service-quota --service-code ec2 --quota-code L-417A185B --output json |
    jq .Quota.Value)
  observed quota_of_P "$quota"
  if [[ $quota != 0 && $quota != 0.0 ]]; then
    verdict undecided "the quota for P instances is not 0 here, and launching one is not cheap"
    return
  fi
  try fleet "$run" 1 on-demand "$(subnets | overrides \
    '{"AllowedInstanceTypes": ["p3*", "p4*", "p5*"], "VCpuCount": {"Min": 8, "Max": 192}}')"
  observed no_quota.code "$code $message"
  show_fleet no_quota
  judge_errors no_quota
}

# A type that the region has and one zone lacks.
not_in_zone() {
  local subnet zone lacking
  for subnet in $(subnets); do
    zone=$(zone_of "$subnet")
    lacking=$(jq -rn --argjson all "$(ec2_kindly describe-instance-type-offerings | jq '[.InstanceTypeOfferings[].InstanceType]')" \
      --argjson here "$(ec2_kindly describe-instance-type-offerings --location-type availability-zone \
        --filters "Name=location,Values=$zone" | jq '[.InstanceTypeOfferings[].InstanceType]')" \
      '[$all - $here | .[] | select(endswith(".large"))][0] // empty')
    if [[ -n $lacking ]]; then break; fi
  done
  if [[ -z ${lacking:-} ]]; then
    verdict undecided "every zone has every type here"
    return
  fi
  observed not_in_zone.type "$lacking in $zone"
  try fleet "$run" 1 on-demand "$(jq -nc --arg s "$subnet" --arg t "$lacking" '[{SubnetId: $s, InstanceType: $t}]')"
  observed not_in_zone.by_type.code "$code $message"
  show_fleet not_in_zone.by_type
  try fleet "$run" 1 on-demand "$(overrides "$(jq -nc --arg t "$lacking" \
    '{AllowedInstanceTypes: [$t], VCpuCount: {Min: 1}}')" <<<"$subnet")"
  observed not_in_zone.by_requirements.code "$code $message"
  show_fleet not_in_zone.by_requirements
  judge_errors not_in_zone
}

# Types without capacity just now, as the operator says.
short() {
  local usage types
  if [[ -z ${BULLPEN_VERIFY_SHORT_TYPES:-} ]]; then
    verdict undecided "no types are named in BULLPEN_VERIFY_SHORT_TYPES"
    return
  fi
  types=$(tr -s ', ' '\n' <<<"$BULLPEN_VERIFY_SHORT_TYPES" | jq -Rsc \
    '{AllowedInstanceTypes: (split("\n") | map(select(. != ""))), VCpuCount: {Min: 1}}')
  for usage in on-demand spot; do
    try fleet "$run" 1 "$usage" "$(subnets | overrides "$types")"
    observed "short.$usage.code" "$code $message"
    show_fleet "short.$usage"
    judge_errors "short.$usage"
  done
}

ground
part "a launch template" make_template
part "a fleet as Bullpen asks for it" plain
part "four hundred types" many_types
part "types without a quota" no_quota
part "a type that a zone lacks" not_in_zone
part "types that are short" short
