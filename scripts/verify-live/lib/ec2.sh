# shellcheck shell=bash
# Machines in EC2: launched with a tag of this run, by which the run ends them, and with user data that ends
# them otherwise.
#
# shellcheck disable=SC2154 # `here`, `run` and `work` are set by the scripts and by common.sh

# The smallest machine of a part, unless the operator names another.
readonly TYPE=${BULLPEN_VERIFY_TYPE:-t3.micro}
# A machine ends itself after so many minutes.
readonly LIFE_MIN=${BULLPEN_VERIFY_LIFE_MIN:-120}

ec2() { aws ec2 "$@" --output json; }
# For calls that only prepare a part, and may be retried.
ec2_kindly() { AWS_MAX_ATTEMPTS=8 aws ec2 "$@" --output json; }

# The caller, and the subnets for machines: the operator's, or those of the default VPC. Without them there is
# nothing to try.
find_ground() {
  observed account "$(aws sts get-caller-identity --query Account --output text)"
  if [[ -n ${BULLPEN_VERIFY_SUBNETS:-} ]]; then
    tr -s ', ' '\n' <<<"$BULLPEN_VERIFY_SUBNETS" >"$work/subnets"
  else
    ec2_kindly describe-subnets --filters Name=default-for-az,Values=true |
      jq -r '.Subnets[].SubnetId' >"$work/subnets"
  fi
  if [[ ! -s $work/subnets ]]; then
    say "there is no default VPC here: name subnets in BULLPEN_VERIFY_SUBNETS"
    return 1
  fi
}
ground() {
  part "the account" find_ground
  [[ -s $work/subnets ]] || exit 0
}

subnets() { cat "$work/subnets"; }
first_subnet() { head -n 1 "$work/subnets"; }

zone_of() {
  ec2_kindly describe-subnets --subnet-ids "$1" | jq -r '.Subnets[0].AvailabilityZone'
}

# The newest image of a name: al2023, ubuntu22 or ubuntu24, for x64.
image() {
  local name
  if [[ -n ${BULLPEN_VERIFY_IMAGE:-} ]]; then
    printf '%s\n' "$BULLPEN_VERIFY_IMAGE"
    return
  fi
  case $1 in
  al2023) name=/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64 ;;
  ubuntu22) name=/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id ;;
  ubuntu24) name=/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id ;;
  *) return 1 ;;
  esac
  AWS_MAX_ATTEMPTS=8 aws ssm get-parameter --name "$name" --query Parameter.Value --output text
}

tags_for() {
  printf 'ResourceType=%s,Tags=[{Key=bullpen-verify,Value=%s},{Key=Name,Value=%s}]' "$1" "$run" "$run"
}
tags_json() {
  jq -nc --arg kind "$1" --arg run "$run" \
    '[{ResourceType: $kind, Tags: [{Key: "bullpen-verify", Value: $run}, {Key: "Name", Value: $run}]}]'
}

# Ends every machine of this run, also those whose launch was never answered.
end_machines_later() {
  grep -q end-machines.sh "$work/undo" || later bash "$here/lib/end-machines.sh" "$run"
}

# User data: ends the machine in time, and runs the script from stdin as root.
user_data() {
  cat <<SCRIPT
#!/bin/bash
shutdown -P +$LIFE_MIN
tell() { echo "bullpen-verify: \$*" >/dev/console; }
SCRIPT
  cat
}

# Launches machines with RunInstances: how many, then more arguments. User data come on stdin, the system is
# that of `system`, or al2023, and metadata travel `hops`, or 1. Prints ids.
machines() {
  local count=$1 ami file="$work/user-data.$BASHPID"
  shift
  ami=$(image "${system:-al2023}")
  user_data >"$file"
  end_machines_later
  ec2_kindly run-instances --count "$count" --instance-type "$TYPE" --image-id "$ami" \
    --subnet-id "$(first_subnet)" --instance-initiated-shutdown-behavior terminate \
    --metadata-options "HttpTokens=required,HttpPutResponseHopLimit=${hops:-1}" --user-data "file://$file" \
    --tag-specifications "$(tags_for instance)" "$(tags_for volume)" "$@" |
    jq -r '.Instances[].InstanceId'
}

state_of() {
  ec2_kindly describe-instances --instance-ids "$1" |
    jq -r '.Reservations[0].Instances[0].State.Name // "unknown"'
}
is_in_state() { [[ $(state_of "$1" 2>/dev/null) == "$2" ]]; }
# Waits for a state, at most ten minutes.
await_state() { within 600 is_in_state "$1" "$2"; }

# A machine's lines on its console, one for each `tell`.
told() {
  ec2_kindly get-console-output --instance-id "$1" --latest |
    jq -r '.Output // ""' | tr -d '\r' | sed -n 's/.*bullpen-verify: //p'
}
has_told() { told "$1" 2>/dev/null | grep -q -- "$2"; }
# Waits for a line on a machine's console, at most ten minutes, and prints all its lines.
hear() {
  if ! within 600 has_told "$1" "$2"; then
    verdict undecided "$1 did not tell \"$2\" on its console" >&2
    return 1
  fi
  told "$1"
}

# The value of `key=value` among a machine's lines.
value_of() { sed -n "s/^$1=//p" | tail -n 1; }

# A launch template as Bullpen writes them. Its name, its image, more of its data as JSON; user data on stdin.
template() {
  local name=$1 ami=$2 more=${3:-"{}"} data
  data=$(user_data | base64 | tr -d '\n' | jq -Rc --arg ami "$ami" --argjson more "$more" '{
      ImageId: $ami, UserData: ., InstanceInitiatedShutdownBehavior: "terminate",
      MetadataOptions: {HttpEndpoint: "enabled", HttpTokens: "required", HttpPutResponseHopLimit: 1}
    } + $more')
  later aws ec2 delete-launch-template --launch-template-name "$name"
  ec2 create-launch-template --launch-template-name "$name" --launch-template-data "$data" \
    --tag-specifications "$(tags_json launch-template)"
}

# Asks for an instant fleet: template, count, `spot` or `on-demand`, overrides as JSON, more arguments.
fleet() {
  local name=$1 count=$2 usage=$3 overrides=$4
  shift 4
  end_machines_later
  ec2 create-fleet --type instant \
    --launch-template-configs "$(jq -nc --arg name "$name" --argjson overrides "$overrides" \
      '[{LaunchTemplateSpecification: {LaunchTemplateName: $name, Version: "1"}, Overrides: $overrides}]')" \
    --target-capacity-specification "TotalTargetCapacity=$count,DefaultTargetCapacityType=$usage" \
    --tag-specifications "$(tags_json instance)" "$@"
}

# Overrides as Bullpen writes them: one for each subnet, with requirements. Subnets come on stdin.
overrides() {
  jq -Rsc --argjson more "${1:-"{}"}" 'split("\n") | map(select(. != "")) | map({
    SubnetId: ., InstanceRequirements: ({
      VCpuCount: {Min: 2, Max: 2}, MemoryMiB: {Min: 0}, BareMetal: "excluded",
      BurstablePerformance: "included",
      SpotMaxPricePercentageOverLowestPrice: 999999, OnDemandMaxPricePercentageOverLowestPrice: 999999
    } + $more)})'
}

# One override of the small type.
one_type() { jq -nc --arg subnet "$1" --arg type "$TYPE" '[{SubnetId: $subnet, InstanceType: $type}]'; }

# The content of a fleet's answer, as observations that begin with a word.
show_fleet() {
  observed "$1.instances" "$(jq -c '[.Instances[]? | {n: (.InstanceIds | length), InstanceType, AvailabilityZone,
    AvailabilityZoneId, SubnetId, Lifecycle, Overrides: .LaunchTemplateAndOverrides.Overrides}]' <<<"$answer")"
  observed "$1.errors" "$(jq -c '[.Errors[]? | {ErrorCode, ErrorMessage, Lifecycle,
    Overrides: .LaunchTemplateAndOverrides.Overrides}]' <<<"$answer")"
}
fleet_ids() { jq -r '.Instances[]?.InstanceIds[]?' <<<"$answer"; }
