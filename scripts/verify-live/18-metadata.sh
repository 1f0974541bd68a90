#!/usr/bin/env bash
# Entry: 18. Instance metadata: hops, and the rule for the job's user
# Does: On three systems, puts in the firewall rule that keeps all but root from the metadata service and asks as
#   a user and as root; asks from a network namespace behind the machine, with hop limits 1 and 2.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE
# Touches: Four machines with a tag of this run, all ended.
# Costs: Four small machines for a few minutes each.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

script() {
  cat <<'SCRIPT'
imds=http://169.254.169.254
token() { "$@" curl --proto '=http' -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $imds/latest/api/token; }
try() { if token "${@:2}" >/dev/null 2>&1; then tell "$1=answered"; else tell "$1=refused"; fi; }
try root_before
tell v1=$(curl --proto '=http' -s -m 5 -o /dev/null -w '%{http_code}' $imds/latest/meta-data/instance-id)
tell iptables=$(command -v iptables || echo none)
tell nft=$(command -v nft || echo none)
ip netns add behind
ip link add front type veth peer name back
ip link set back netns behind
ip address add 10.213.0.1/24 dev front
ip link set front up
ip -n behind address add 10.213.0.2/24 dev back
ip -n behind link set back up
ip -n behind route add default via 10.213.0.1
sysctl -qw net.ipv4.ip_forward=1
if command -v nft >/dev/null; then
  nft -f - <<'N'
table ip verify {
  chain out { type nat hook postrouting priority 100; ip saddr 10.213.0.0/24 masquerade; }
}
N
else
  iptables -t nat -A POSTROUTING -s 10.213.0.0/24 -j MASQUERADE
fi
try one_hop_further ip netns exec behind
useradd -m job
if command -v iptables >/dev/null; then
  iptables --wait --insert OUTPUT --destination 169.254.169.254 -m owner ! --uid-owner 0 -j REJECT
  tell rule=iptables:$?
  ip6tables --wait --insert OUTPUT --destination fd00:ec2::254 -m owner ! --uid-owner 0 -j REJECT
  tell rule6=ip6tables:$?
elif command -v nft >/dev/null; then
  nft -f - <<'N'
add table inet bullpen
add chain inet bullpen output { type filter hook output priority 0 ; }
add rule inet bullpen output meta skuid 0 accept
add rule inet bullpen output ip daddr 169.254.169.254 reject
add rule inet bullpen output ip6 daddr fd00:ec2::254 reject
N
  tell rule=nft:$?
  tell listed=$(nft list chain inet bullpen output | grep -c ' daddr .* reject')
else
  tell rule=none
fi
try job_after runuser -u job --
try root_after
tell done=yes
SCRIPT
}

# A machine of one system with a hop limit; its output is observed, and left in `said`.
look() {
  local id
  id=$(script | system=$1 hops=$2 machines 1)
  said=$(hear "$id" done=yes)
  observed "$1.hops_$2" "$(tr '\n' ' ' <<<"$said")"
}

rule() {
  local said
  look "$1" 1
  expect "$1: version 1" "$(value_of v1 <<<"$said")" 401
  expect "$1: root" "$(value_of root_after <<<"$said")" answered
  expect "$1: the job's user" "$(value_of job_after <<<"$said")" refused
  expect "$1: one hop further, limit 1" "$(value_of one_hop_further <<<"$said")" refused
}

two_hops() {
  local said
  look ubuntu24 2
  expect "one hop further, limit 2" "$(value_of one_hop_further <<<"$said")" answered
}

ground
part "Ubuntu 24.04" rule ubuntu24
part "Ubuntu 22.04" rule ubuntu22
part "Amazon Linux 2023" rule al2023
part "a hop limit of 2" two_hops
