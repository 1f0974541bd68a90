# shellcheck shell=bash
# What every script here shares: its header is read, what is missing is named, what it makes is removed
# again, and what it saw is written down.
#
# A script is a list of parts. A part that fails is one that decides nothing; the others still run. Parts are
# subshells, so what they leave behind is in files of $work.
#
# shellcheck disable=SC2034 # what is set here is read by the scripts

# The AWS command shows one answer at a time and asks once: what is refused is what we came to see.
export AWS_PAGER="" AWS_MAX_ATTEMPTS=1 AWS_RETRY_MODE=standard

readonly MISSING=69 DIFFERS=10 UNDECIDED=11

say() { printf '%s\n' "$*"; }

# One thing that was seen.
observed() { printf 'observed: %s=%s\n' "$1" "${*:2}"; }

# Codes that say something of the caller and nothing of what was to be seen.
readonly OF_THE_CALLER='^(failed|Unauthorized.*|AccessDenied.*|AuthFailure|ExpiredToken.*|RequestExpired|RequestLimitExceeded|Throttl.*|OptInRequired|PendingVerification)$'

# What it means for what the code assumes: agrees, differs or undecided, and why. Nothing is held against the
# code because the last call was not allowed.
verdict() {
  local word=$1
  shift
  if [[ $word == differs && ${code:-ok} =~ $OF_THE_CALLER ]]; then
    word=undecided
    set -- "$* (the last call was answered with $code)"
  fi
  printf 'verdict: %s: %s\n' "$word" "$*"
  printf '%s\n' "$word" >>"$work/verdicts"
}

# `verdict agrees` if the two are the same, else `differs`.
expect() {
  if [[ $2 == "$3" ]]; then
    verdict agrees "$1: $2"
  else
    verdict differs "$1: ${2:-nothing}, and the code expects $3"
  fi
}

# All of a header's lines of one name.
header() { sed -n "s/^# $1: //p" "$script"; }

# Says what this is, and ends if something that it needs is not there.
begin() {
  script=$1
  number=$(basename "$script" | cut -d- -f1)
  day=$(date -u +%Y%m%dt%H%M%S)
  run="bullpen-verify-$number-$day-$$"
  local missing=() tool name
  for tool in jq $(header Tools); do
    command -v "$tool" >/dev/null || missing+=("the program $tool")
  done
  for name in $(header Variables); do
    [[ -n ${!name:-} ]] || missing+=("the variable $name (see scripts/verify-live/README.md)")
  done
  if ((${#missing[@]} > 0)); then
    printf 'missing: %s\n' "${missing[@]}" >&2
    exit "$MISSING"
  fi
  work=$(mktemp -d)
  touch "$work/verdicts" "$work/undo"
  record="${BULLPEN_VERIFY_RECORDS:-$PWD}/$run.txt"
  # What interrupts is for the script: its cleaning up still has something to say.
  exec > >(
    trap '' INT TERM HUP
    exec tee -a "$record"
  ) 2>&1
  say "entry: $(header Entry)"
  say "run: $run"
  say "begun: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  if [[ " $(header Tools) " == *" aws "* ]]; then
    say "region: ${AWS_REGION:-}"
    say "aws: $(aws --version 2>&1)"
  fi
}

# A command that removes what is about to be made. Said before it is made, because anything may come between.
later() {
  local words
  printf -v words '%q ' "$@"
  printf '%s\n' "$words" >>"$work/undo"
}

# What says that there is nothing to remove: it was never made, or is gone or over already.
readonly GONE='NotFound|NoSuchEntity|NoSuchBucket|NonExistentQueue|does not exist|HTTP (404|409|422)'

# To be the handler of EXIT: removes everything, the newest first, and says the whole.
finish() {
  local status=$? line
  # Nothing keeps it from cleaning up, not even that nobody listens any more.
  trap '' INT TERM HUP PIPE
  set +e
  if [[ -z ${work:-} ]]; then exit "$status"; fi
  export AWS_MAX_ATTEMPTS=8
  while IFS= read -r line; do
    bash -c "$line" <<<"" >"$work/undone" 2>&1 && continue
    grep -qE "$GONE" "$work/undone" && continue
    say "not removed: $line"
    sed 's/^/  /' "$work/undone"
  done < <(tac "$work/undo")
  local whole=agrees code=0
  if grep -qx differs "$work/verdicts"; then
    whole=differs code=$DIFFERS
  elif ((status != 0)) || grep -qx undecided "$work/verdicts" || [[ ! -s $work/verdicts ]]; then
    whole=undecided code=$UNDECIDED
  fi
  ((status == 130 || status == 143)) && say "interrupted" && code=$status
  say "ended: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  say "whole: $whole"
  say "record: $record"
  rm -rf "$work"
  exit "$code"
}

# Runs a function as a part of its own.
part() {
  local status
  say ""
  say "part: $1"
  set +e
  (
    set -e
    "${@:2}"
  )
  status=$?
  set -e
  ((status == 0)) || verdict undecided "this part ended early ($status)"
}

# Runs a command whose failure is an observation. `answer` is what it printed, `code` AWS's error code, `ok` if
# there was none, and `message` what it said beside.
try() {
  local said="$work/said.$BASHPID"
  message="" code=ok
  if answer=$("$@" 2>"$said"); then return 0; fi
  message=$(tr '\n' ' ' <"$said")
  code=$(sed -n 's/.*An error occurred (\([^)]*\)).*/\1/p' "$said" | head -n 1)
  code=${code:-failed}
}

# Runs a command until it succeeds, at most so many seconds.
within() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    ((SECONDS < end)) || return 1
    sleep 2
  done
}

# Waits until this many seconds after `since`, a value of SECONDS.
wait_until() {
  local left=$(($1 + $2 - SECONDS))
  ((left <= 0)) || sleep "$left"
}

now_ms() { python3 -c 'import time; print(time.time_ns() // 1_000_000)'; }

# Asks the operator to do something. Nobody there: the part decides nothing.
person() {
  say "to do by hand: $*"
  if [[ ! -t 0 ]]; then
    verdict undecided "nobody is there to do it"
    return 1
  fi
  read -r -p "press Enter when it is done " _
}
