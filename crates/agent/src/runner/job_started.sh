# Bullpen: reports this job's run to the agent of this machine. A job of another run waits here
# until the agent kills its runner: the runner program runs a job's `always()` steps even after
# a hook that fails, but never before a hook returns.
{
  printf 'repository=%s\n' "${GITHUB_REPOSITORY:-}"
  printf 'run=%s\n' "${GITHUB_RUN_ID:-}"
  printf 'attempt=%s\n' "${GITHUB_RUN_ATTEMPT:-}"
  printf 'job=%s\n' "${GITHUB_JOB:-}"
  printf 'event=%s\n' "${GITHUB_EVENT_NAME:-}"
  printf 'end\n'
} >"$report" || :
repository=${GITHUB_REPOSITORY:-}
is_stranger=
if [ -n "$own_run" ] && [ "$own_run" != "${GITHUB_RUN_ID:-}" ]; then
  is_stranger=1
fi
if [ -n "$own_repository" ] && [ "$own_repository" != "${repository,,}" ]; then
  is_stranger=1
fi
if [ -n "$is_stranger" ]; then
  echo "::error::This runner is for the jobs of another workflow run. Name a label of this run in runs-on."
  while :; do
    sleep 3600 || read -r -t 3600 _ || :
  done
fi
case "$images_hook" in
'') ;;
*.ps1) exec pwsh -command ". '$images_hook'" ;;
*) exec bash -e "$images_hook" ;;
esac
