#!/usr/bin/env bash
# Entry: 23. The policies that Bullpen prints
# Does: Makes roles with the policies of `bullpen policies`, and as the control plane makes a launch template,
#   launches a machine from it, tags, stops, starts and ends it; then tries the same with a machine that is not
#   the stack's.
# Tools: aws
# Variables: AWS_REGION BULLPEN
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: Two roles, an instance profile, a launch template and two machines with names or tags of this run, all
#   removed.
# Costs: Two small machines for about ten minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
source "$here/lib/iam.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
begin "${BASH_SOURCE[0]}"

readonly STACK="verify-$$"

# The tags of the stack beside those of this run.
ours() {
  tags_json "$1" | jq -c --arg stack "$STACK" '.[0].Tags += [{Key: "bullpen:stack", Value: $stack}]'
}

printed() { "$BULLPEN" policies "$1" --stack "$work/bullpen.toml"; }

roles() {
  local control
  printf '[stack]\nname = "%s"\n\n[aws]\nregion = "%s"\ninstance-profile = "%s"\n' "$STACK" "$AWS_REGION" "$run" \
    >"$work/bullpen.toml"
  control=$(printed control-plane | jq -c .)
  observed control_plane_bytes "${#control}"
  profile "$(printed instance | jq -c .)"
  take_role "$control"
  cp "$keys" "$work/control"
  # A policy takes a while to be known everywhere.
  sleep 20
}

# Makes a call as the control plane, and checks its answer.
must() {
  local wanted=$1 what=$2 seen
  shift 2
  try as_role ec2 "$@"
  seen=$code
  observed "$what" "$seen $(head -c 300 <<<"$message")"
  # A refusal is an observation either way.
  code=ok
  expect "$what" "$seen" "$wanted"
}

own() {
  local data id keys="$work/control"
  data=$(jq -nc --arg ami "$(image al2023)" --arg profile "$run" --argjson volumes "$(ours volume)" \
    '{ImageId: $ami, IamInstanceProfile: {Name: $profile}, InstanceInitiatedShutdownBehavior: "terminate",
      MetadataOptions: {HttpTokens: "required"}, TagSpecifications: $volumes}')
  later aws ec2 delete-launch-template --launch-template-name "bullpen-$STACK-1"
  must ok "make a template" create-launch-template --launch-template-name "bullpen-$STACK-1" \
    --launch-template-data "$data" --tag-specifications "$(ours launch-template)"
  end_machines_later
  must ok "launch" create-fleet --type instant \
    --launch-template-configs "$(jq -nc --arg name "bullpen-$STACK-1" --argjson overrides "$(one_type "$(first_subnet)")" \
      '[{LaunchTemplateSpecification: {LaunchTemplateName: $name, Version: "1"}, Overrides: $overrides}]')" \
    --target-capacity-specification TotalTargetCapacity=1,DefaultTargetCapacityType=on-demand \
    --tag-specifications "$(ours instance)"
  show_fleet launch
  id=$(fleet_ids | head -n 1)
  if [[ -z $id ]]; then
    verdict differs "the launch brought no machine; its errors say which permission is missing"
    return
  fi
  await_state "$id" running
  must ok "tag" create-tags --resources "$id" --tags Key=bullpen:standby-status,Value=ready
  must UnauthorizedOperation "another tag" create-tags --resources "$id" --tags Key=bullpen:stack,Value=other
  must ok "stop" stop-instances --instance-ids "$id"
  await_state "$id" stopped
  must ok "start" start-instances --instance-ids "$id"
  must ok "end" terminate-instances --instance-ids "$id"
}

others() {
  local id keys="$work/control"
  id=$(machines 1 </dev/null)
  await_state "$id" running
  must UnauthorizedOperation "stop another's" stop-instances --instance-ids "$id"
  must UnauthorizedOperation "end another's" terminate-instances --instance-ids "$id"
  must UnauthorizedOperation "tag another's" create-tags --resources "$id" \
    --tags Key=bullpen:standby-status,Value=ready
  must UnauthorizedOperation "launch without the tag" run-instances --image-id "$(image al2023)" \
    --instance-type "$TYPE" --subnet-id "$(first_subnet)" --tag-specifications "$(tags_for instance)"
}

ground
part "roles" roles
part "what is the stack's" own
part "what is not" others
