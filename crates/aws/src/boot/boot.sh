#!/bin/bash
# The first boot of an instance, run once by cloud-init as root. Later boots start the units only.
# Rendering drops comments and indentation and replaces three lines: @plan@, @fetch@ and @payload@.
set -euo pipefail
exec > >(tee -a /var/log/bullpen-boot.log) 2>&1

# If a step fails, power off now instead of idling until the watchdog does. The sleep gives the
# message time to reach the console.
over() {
  (($1 == 0)) && return
  echo "bullpen: boot failed ($1) at: $2"
  sleep 2
  systemctl poweroff --force
}
trap 'over $? "$BASH_COMMAND"' EXIT

@plan@
units=/etc/systemd/system
agent=/opt/bullpen/bullpen-agent
machine=/var/lib/bullpen/machine

# Restart, because the image may come from a machine that already had the units.
run() {
  systemctl enable "$1"
  systemctl restart "$1"
}

# First, and for every boot.
cat >$units/bullpen-watchdog.service <<E
[Unit]
Description=Bullpen: the time of this machine is over
[Service]
Type=oneshot
ExecStart=systemctl poweroff --force
E
cat >$units/bullpen-watchdog.timer <<E
[Unit]
Description=Bullpen watchdog
[Timer]
OnBootSec=${watchdog}s
AccuracySec=1s
[Install]
WantedBy=timers.target
E
run bullpen-watchdog.timer

@fetch@

# Without sudo, remove the user from every group that can become root and refuse an image that lets
# it: the service treats jobs on such a machine as unprivileged. The user is given by number: a name
# would have to be escaped.
if [[ $user ]]; then
  id -u "$user" &>/dev/null || useradd -m -s /bin/bash "$user"
  leaves=
  if [[ ! $docker ]]; then
    leaves=docker
  elif getent group docker >/dev/null; then
    usermod -aG docker "$user"
  fi
  [[ $sudo ]] || leaves+=" admin incus lxd sudo wheel"
  for group in $leaves; do
    if [[ " $(id -nG "$user") " == *" $group "* ]]; then gpasswd -d "$user" "$group"; fi
  done
  rm -f /etc/sudoers.d/bullpen
  if [[ $sudo ]]; then
    install -Dm 440 /dev/stdin /etc/sudoers.d/bullpen <<<"#$(id -u "$user") ALL=(ALL) NOPASSWD: ALL"
  elif runuser -u "$user" -- sudo -n true &>/dev/null; then
    die "the image lets $user become root, and sudo is off"
  fi
fi

mkdir -p $machine ${agent%/*}
if [[ $agent_url ]]; then
  bring "$agent_url" "$agent_sha256" $agent
fi
[[ -f $agent ]] || die "no agent in the image, and nowhere to fetch it"
chmod 755 $agent

umask 077
@payload@
umask 022

# A job's processes are the agent's children. They outlive a restart of the agent, there may be
# many, and a process that runs out of memory must not end the agent. The agent's OOM score is not
# lowered: jobs would inherit it, and the kernel would kill the system's processes before theirs.
cat >$units/bullpen-agent.service <<E
[Unit]
Description=Bullpen agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0
SuccessAction=poweroff
[Service]
ExecStart=$agent --machine $machine
Restart=on-failure
RestartSec=2
KillMode=process
TimeoutStopSec=10
TasksMax=infinity
OOMPolicy=continue
StandardOutput=journal+console
StandardError=inherit
[Install]
WantedBy=multi-user.target
E
run bullpen-agent.service
