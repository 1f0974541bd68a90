#!/usr/bin/env bash
# Entry: 8. EC2's token buckets
# Does: Makes each kind of call as fast as it can for a while, on one machine of its own where there must be
#   one, and notes how many pass before RequestLimitExceeded and how many a second after that.
# Tools: aws python3
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SECONDS BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: One machine, ended. Everything else of the account in this region is throttled meanwhile: use a
#   region where nothing runs.
# Costs: One small machine for about ten minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
source "$here/lib/credentials.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly FOR_S=${BULLPEN_VERIFY_SECONDS:-40}

# A kind of call: its name, its rates in core::rates ("burst refill"), the action, its parameters.
bucket() {
  local name=$1 held=$2 seen passed
  shift 2
  seen=$(signed burst --seconds "$FOR_S" --at-once 16 "$@")
  observed "$name" "$(jq -c . <<<"$seen")"
  observed "$name.held" "$held"
  passed=$(jq -r '.passed_before_throttled // "none"' <<<"$seen")
  if [[ $passed == none ]]; then
    verdict undecided "$name: nothing was throttled in $FOR_S s; we hold $held"
  elif ((passed < ${held% *})); then
    verdict differs "$name: $passed passed at once, and core::rates holds $held"
  else
    verdict agrees "$name: $passed passed at once, and core::rates holds $held; compare the refill"
  fi
  # The bucket fills again before the next kind is tried.
  sleep 30
}

buckets() {
  local id
  credentials
  id=$(machines 1 </dev/null)
  await_state "$id" running
  bucket describe "100 20" DescribeInstances "Filter.1.Name=tag:bullpen-verify" "Filter.1.Value.1=$run" MaxResults=5
  bucket tag "50 5" CreateTags "ResourceId.1=$id" Tag.1.Key=bullpen-verify-count Tag.1.Value=1
  # A start of a running machine and a stop of a stopped one change nothing, and EC2 counts them.
  bucket start "5 2" StartInstances "InstanceId.1=$id"
  ec2_kindly stop-instances --instance-ids "$id" >/dev/null
  await_state "$id" stopped
  bucket stop "50 5" StopInstances "InstanceId.1=$id"
  ec2_kindly terminate-instances --instance-ids "$id" >/dev/null
  await_state "$id" terminated
  bucket terminate "100 5" TerminateInstances "InstanceId.1=$id"
}

# A launch with an unknown template launches nothing. The first refusal, if there is one, shows that EC2 counts
# such launches.
launches() {
  credentials
  bucket launch "5 2" CreateFleet Type=instant TargetCapacitySpecification.TotalTargetCapacity=1 \
    TargetCapacitySpecification.DefaultTargetCapacityType=on-demand \
    "LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=$run-none" \
    LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=1
}

ground
part "calls about machines" buckets
part "launches" launches
