//! The supervisor: one process per running machine. It starts the agent, restarts it after a crash,
//! and ends the machine by its own clock.
//!
//! It uses only the machine's directory: no store, no network, no user data. So it ends the machine
//! in time even if those are broken, or if the agent hangs or never starts.
//!
//! Not here: starting a supervisor, and repairs after its death (`machines`).

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bullpen_agent::runner::tree::{Identity, MARK};
use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;
use rustix::process::setsid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::directory::MachineDirectory;
use super::ending::end_all;
use super::record::{BootFile, BootPhase, BootPlan, MachineGoal, SupervisorEnd, Version};
use super::{host_boot, life_lock};

/// How often to read the end time that the agent asked for.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The first delay before the restart of a crashed agent; each further crash doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// The longest delay.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// After an agent that ran this long, the delay begins anew.
const RAN_WELL: Duration = Duration::from_secs(60);

/// Runs the supervisor from taking the machine's lock to the machine's end; returns why the machine
/// ended. The tokio runtime needs its time and I/O drivers.
pub async fn supervise<C: Clock>(machine: &Path, clock: Arc<C>) -> io::Result<SupervisorEnd> {
    let home = MachineDirectory::at(machine.canonicalize()?);
    // The launcher's terminal may close. `setsid` fails if this process leads a session already.
    let _ = setsid();
    std::env::set_current_dir(home.path())?;
    let life = life_lock::inherited(&home.lock())?;
    let sigterm = signal(SignalKind::terminate())?;
    let mut supervisor = Supervisor::new(home, clock, sigterm)?;
    supervisor.write_phase(BootPhase::Pending)?;
    let by = supervisor.run().await;
    match &by {
        Ok(by) => tracing::info!(?by, "the machine ends"),
        Err(error) => tracing::error!(%error, "the machine ends without its directory"),
    }
    end_all(&BTreeSet::from([supervisor.home.mark()]), &supervisor.users)?;
    let by = by?;
    supervisor.write_phase(BootPhase::Ended { at: supervisor.clock.now(), by })?;
    // Last, because a process that finds the lock free may remove the machine.
    life.unlock()?;
    Ok(by)
}

struct Supervisor<C> {
    home: MachineDirectory,
    /// The machine's own user, if it has one.
    users: BTreeSet<u32>,
    clock: Arc<C>,
    sigterm: Signal,
    plan: BootPlan,
    boot: BootFile,
    watchdog: Watchdog,
    agent: Agent,
    backoff: Duration,
}

/// The latest end of the machine.
#[derive(Clone, Copy, Debug)]
struct Watchdog {
    /// On the monotonic clock.
    at: Duration,
    /// The end that the agent asked for.
    ends_by: Option<Timestamp>,
}

impl Watchdog {
    /// Applies an end that the agent asked for; the earliest one counts.
    fn shorten(&mut self, ends_by: Option<Timestamp>) {
        self.ends_by = [self.ends_by, ends_by].into_iter().flatten().min();
    }

    fn is_over(self, monotonic: Duration, now: Timestamp) -> Option<SupervisorEnd> {
        if monotonic >= self.at {
            return Some(SupervisorEnd::Watchdog);
        }
        self.ends_by.filter(|by| *by <= now).map(|_| SupervisorEnd::EndsBy)
    }
}

/// The machine's agent process.
enum Agent {
    Waiting {
        /// When to start it.
        until: Duration,
    },
    Running {
        process: Child,
        since: Duration,
    },
}

impl<C: Clock> Supervisor<C> {
    fn new(home: MachineDirectory, clock: Arc<C>, sigterm: Signal) -> io::Result<Self> {
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let record = home.record()?.ok_or_else(|| broken("there is no machine.json"))?;
        let MachineGoal::Up { boot, .. } = record.life else {
            return Err(broken("machine.json does not want the machine up"));
        };
        let own = i32::try_from(std::process::id()).ok().and_then(Identity::of);
        let boot = BootFile {
            version: Version::CURRENT,
            id: boot,
            host: host_boot()?,
            supervisor: own.ok_or_else(|| broken("/proc does not show this process"))?,
            began: clock.now(),
            phase: BootPhase::Pending,
        };
        let since = clock.monotonic();
        let agent = Agent::Waiting { until: since + record.plan.boot_delay };
        let watchdog = Watchdog { at: since + record.plan.watchdog, ends_by: None };
        let (plan, backoff) = (record.plan, BACKOFF_MIN);
        let users = record.facts.user.into_iter().collect();
        Ok(Self { home, users, clock, sigterm, plan, boot, watchdog, agent, backoff })
    }

    fn write_phase(&mut self, phase: BootPhase) -> io::Result<()> {
        self.boot.phase = phase;
        self.home.write_boot(&self.boot)
    }

    /// Keeps an agent running until something ends the machine. Fails when its directory is gone: no
    /// process would find the machine again.
    async fn run(&mut self) -> io::Result<SupervisorEnd> {
        loop {
            self.home.is_there()?;
            if let Some(by) = self.is_over() {
                return Ok(by);
            }
            self.start_agent_if_due();
            let wait = self.next_wait();
            let process = match &mut self.agent {
                Agent::Running { process, .. } => Some(process),
                Agent::Waiting { .. } => None,
            };
            tokio::select! {
                biased;
                _ = self.sigterm.recv() => return Ok(SupervisorEnd::Terminated),
                status = exit_of(process) => match status {
                    Ok(status) if status.success() => return Ok(SupervisorEnd::Agent),
                    status => self.schedule_restart(status),
                },
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    fn is_over(&mut self) -> Option<SupervisorEnd> {
        self.watchdog.shorten(self.home.ends_by());
        self.watchdog.is_over(self.clock.monotonic(), self.clock.now())
    }

    /// The time to the next known event, at most [`POLL_INTERVAL`].
    fn next_wait(&self) -> Duration {
        let now = self.clock.monotonic();
        let restart = match &self.agent {
            Agent::Waiting { until } => until.saturating_sub(now),
            Agent::Running { .. } => POLL_INTERVAL,
        };
        let ends_by = self.watchdog.ends_by;
        let end = ends_by.map_or(POLL_INTERVAL, |by| by.since(self.clock.now()));
        POLL_INTERVAL.min(restart).min(self.watchdog.at.saturating_sub(now)).min(end)
    }

    /// Starts the agent when its time has come. The machine goes on if the agent does not start.
    fn start_agent_if_due(&mut self) {
        let now = self.clock.monotonic();
        if !matches!(&self.agent, Agent::Waiting { until } if *until <= now) {
            return;
        }
        match self.start_agent() {
            Ok(process) => self.agent = Agent::Running { process, since: now },
            Err(error) => {
                tracing::warn!(%error, "could not start the agent");
                self.back_off();
            }
        }
        if self.boot.phase == BootPhase::Pending
            && let Err(error) = self.write_phase(BootPhase::Running)
        {
            // The next start of an agent tries again; the machine's end does not depend on it.
            self.boot.phase = BootPhase::Pending;
            tracing::warn!(%error, "could not write the boot's phase");
        }
    }

    fn start_agent(&self) -> io::Result<Child> {
        let log = self.home.log("agent.log")?.into();
        let errors = self.home.log("agent.log")?.into();
        Command::new(&self.plan.agent[0])
            .args(&self.plan.agent[1..])
            .arg("--machine")
            .arg(self.home.path())
            .args(["--boot", &self.boot.id])
            .env_clear()
            .envs(&self.plan.environment)
            .env(MARK, agent_mark(&self.home))
            .stdin(Stdio::null())
            .stdout::<Stdio>(log)
            .stderr::<Stdio>(errors)
            .process_group(0)
            .spawn()
    }

    fn schedule_restart(&mut self, status: io::Result<ExitStatus>) {
        match status {
            Ok(status) => tracing::warn!(%status, "the agent crashed"),
            Err(error) => tracing::warn!(%error, "could not wait for the agent"),
        }
        if let Agent::Running { since, .. } = &self.agent
            && self.clock.monotonic().saturating_sub(*since) >= RAN_WELL
        {
            self.backoff = BACKOFF_MIN;
        }
        self.back_off();
    }

    fn back_off(&mut self) {
        self.agent = Agent::Waiting { until: self.clock.monotonic() + self.backoff };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}

/// The mark of a machine's agent process.
pub(super) fn agent_mark(home: &MachineDirectory) -> String {
    format!("{}/agent", home.mark())
}

async fn exit_of(process: Option<&mut Child>) -> io::Result<ExitStatus> {
    match process {
        Some(process) => process.wait().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_can_only_shorten_the_watchdog() {
        let secs = Duration::from_secs;
        let now = |seconds| Timestamp::EPOCH.after(secs(seconds));
        let mut watchdog = Watchdog { at: secs(100), ends_by: None };
        assert_eq!(watchdog.is_over(secs(99), now(99)), None);
        watchdog.shorten(Some(now(1_000)));
        assert_eq!(watchdog.is_over(secs(100), now(100)), Some(SupervisorEnd::Watchdog));
        watchdog.shorten(Some(now(50)));
        watchdog.shorten(Some(now(80)));
        watchdog.shorten(None);
        assert_eq!(watchdog.is_over(secs(49), now(49)), None);
        assert_eq!(watchdog.is_over(secs(50), now(50)), Some(SupervisorEnd::EndsBy));
    }
}
