#!/usr/bin/env bash
# Ends every machine with the tag of one run, and waits until all are ending. No filter finds a new id for a
# while, so an empty answer counts only the second time.
set -euo pipefail
trap 'exit 130' INT

run=$1
quiet=0
for _ in $(seq 40); do
  found=$(aws ec2 describe-instances --output json \
    --filters "Name=tag:bullpen-verify,Values=$run" \
    Name=instance-state-name,Values=pending,running,stopping,stopped |
    jq -r '.Reservations[].Instances[].InstanceId')
  if [[ -z $found ]]; then
    quiet=$((quiet + 1))
    ((quiet < 2)) || exit 0
  else
    quiet=0
    # shellcheck disable=SC2086 # one word for each id
    aws ec2 terminate-instances --instance-ids $found >/dev/null || true
  fi
  sleep 5
done
echo "machines with the tag bullpen-verify=$run are left: $found"
exit 1
