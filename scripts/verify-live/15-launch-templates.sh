#!/usr/bin/env bash
# Entry: 15. Launch templates
# Does: Makes a template as Bullpen does and launches from it at once; reads it back and compares; makes it a
#   second time; deletes it and names it again.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_ROUNDS BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: A few launch templates and machines with a tag of this run, all removed.
# Costs: A small machine for each round, for a minute or two.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly ROUNDS=${BULLPEN_VERIFY_ROUNDS:-3}

at_once() {
  local round ami subnet known=0
  ami=$(image al2023)
  subnet=$(first_subnet)
  for round in $(seq "$ROUNDS"); do
    template "$run-$round" "$ami" </dev/null >/dev/null
    try fleet "$run-$round" 1 on-demand "$(one_type "$subnet")"
    observed "launch_at_once" "$round $code $(jq -c '[.Errors[]?.ErrorCode]' <<<"${answer:-"{}"}") $message"
    [[ $code != ok || -z $(fleet_ids) ]] || known=$((known + 1))
  done
  expect "launches from a template just made" "$known" "$ROUNDS"
}

reads_back() {
  local ami group data device version
  ami=$(image al2023)
  device=$(ec2_kindly describe-images --image-ids "$ami" | jq -r '.Images[0].RootDeviceName')
  group=$(ec2_kindly describe-security-groups --filters Name=group-name,Values=default |
    jq -r '.SecurityGroups[0].GroupId')
  data=$(jq -nc --arg device "$device" --arg group "$group" '{SecurityGroupIds: [$group],
    BlockDeviceMappings: [{DeviceName: $device, Ebs: {Encrypted: true, DeleteOnTermination: true, VolumeType: "gp3"}}]}')
  template "$run-read" "$ami" "$data" <<<"tell ä 'quoted'" >/dev/null
  version=$(ec2 describe-launch-template-versions --launch-template-name "$run-read" --versions 1 |
    jq -c '.LaunchTemplateVersions[0].LaunchTemplateData')
  observed read_back "$(jq -c 'del(.UserData)' <<<"$version")"
  expect "user data read back" "$(jq -r .UserData <<<"$version" | base64 -d | tail -n 1)" "tell ä 'quoted'"
  expect "the group read back" "$(jq -r '.SecurityGroupIds[0] // "nothing"' <<<"$version")" "$group"
  expect "encryption read back" "$(jq -r '.BlockDeviceMappings[0].Ebs.Encrypted' <<<"$version")" true
  expect "the hop limit read back" "$(jq -r '.MetadataOptions.HttpPutResponseHopLimit' <<<"$version")" 1
}

names() {
  try template "$run-1" "$(image al2023)" </dev/null
  observed made_twice "$code $message"
  expect "a template that is there already" "$code" InvalidLaunchTemplateName.AlreadyExistsException
  ec2 delete-launch-template --launch-template-name "$run-1" >/dev/null
  try ec2 describe-launch-template-versions --launch-template-name "$run-1" --versions 1
  observed versions_of_deleted "$code $message"
  expect "versions of a template that is gone" "$code" InvalidLaunchTemplateName.NotFoundException
  try ec2 delete-launch-template --launch-template-name "$run-1"
  expect "a second deletion" "$code" InvalidLaunchTemplateName.NotFoundException
  try fleet "$run-1" 1 on-demand "$(one_type "$(first_subnet)")"
  observed launch_from_deleted "$code $(jq -c '[.Errors[]?.ErrorCode]' <<<"${answer:-"{}"}") $message"
  if grep -qE 'InvalidLaunchTemplateName.NotFoundException|InvalidLaunchTemplateId.(Version)?NotFound' \
    <<<"$code $answer"; then
    verdict agrees "a launch from a template that is gone is answered with a code that we know"
  else
    verdict differs "a launch from a template that is gone is answered with another code, or launches"
  fi
}

ground
part "a launch right after" at_once
part "what is read back" reads_back
part "twice, and gone" names
