#!/usr/bin/env bash
# Entry: 16. User data, and the end of a machine whose agent never comes
# Does: Boots a machine whose user data arm a timer for every boot and start no agent; waits until it powers
#   itself off and is terminated, with its disk; boots a second one, stops and starts it, and waits again.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: Two machines with a tag of this run, which end themselves.
# Costs: Two small machines for about ten minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

# Seconds from boot to the end; a stop and a start fit into it.
readonly WATCHDOG_S=240

# The timer as the boot script writes it, and a note of each run of this very script.
script() {
  cat <<SCRIPT
echo run >>/var/lib/bullpen-verify-runs
cat >/etc/systemd/system/bullpen-watchdog.service <<U
[Unit]
Description=the time of this machine is over
[Service]
Type=oneshot
ExecStart=systemctl poweroff --force
U
cat >/etc/systemd/system/bullpen-watchdog.timer <<U
[Unit]
Description=watchdog
[Timer]
OnBootSec=${WATCHDOG_S}s
AccuracySec=1s
[Install]
WantedBy=timers.target
U
cat >/etc/systemd/system/bullpen-tell.service <<'U'
[Unit]
Description=tells the console that it is up
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'echo "bullpen-verify: boot=\$(cat /proc/sys/kernel/random/boot_id)" >/dev/console; echo "bullpen-verify: runs=\$(wc -l </var/lib/bullpen-verify-runs)" >/dev/console'
[Install]
WantedBy=multi-user.target
U
systemctl enable bullpen-watchdog.timer bullpen-tell.service
systemctl restart bullpen-watchdog.timer
systemctl restart bullpen-tell.service
tell armed=yes
SCRIPT
}

# Waits for the end and says what it was.
ends_itself() {
  local id=$1 since=$2 volume=$3 why
  if ! await_state "$id" terminated; then
    verdict differs "the machine is $(state_of "$id") long after its time"
    return
  fi
  observed ended_after_s "$((SECONDS - since)), with $WATCHDOG_S from boot"
  why=$(ec2_kindly describe-instances --instance-ids "$id" | jq -r '.Reservations[0].Instances[0].StateReason.Code')
  expect "why it ended" "$why" Client.InstanceInitiatedShutdown
  try ec2 describe-volumes --volume-ids "$volume"
  expect "its disk" "$code" InvalidVolume.NotFound
}

volume_of() {
  ec2_kindly describe-instances --instance-ids "$1" |
    jq -r '.Reservations[0].Instances[0].BlockDeviceMappings[0].Ebs.VolumeId'
}

alone() {
  local id begun=$SECONDS
  id=$(script | machines 1)
  await_state "$id" running
  observed running_after_s "$((SECONDS - begun))"
  begun=$SECONDS
  ends_itself "$id" "$begun" "$(volume_of "$id")"
}

second_boot() {
  local id begun
  id=$(script | machines 1)
  await_state "$id" running
  hear "$id" armed=yes
  ec2_kindly stop-instances --instance-ids "$id" >/dev/null
  await_state "$id" stopped
  ec2_kindly start-instances --instance-ids "$id" >/dev/null
  await_state "$id" running
  begun=$SECONDS
  observed after_the_second_boot "$(told "$id" | tail -n 4 | tr '\n' ' ')"
  ends_itself "$id" "$begun" "$(volume_of "$id")"
}

ground
part "a machine whose agent never comes" alone
part "the same after a stop and a start" second_boot
