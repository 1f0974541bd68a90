//! The supervisor: one process per machine that is up. It starts the agent, starts it again when it
//! crashes, and ends the machine, by its own clock and without asking anybody.
//!
//! It knows the machine's directory and nothing else: no store, no network, no user data. So it
//! keeps its word when any of those is broken, and when the agent hangs or never comes up.
//!
//! Not here: starting a supervisor, or what is left when one is killed (`machines`).

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

/// How often the agent's wish to end is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How long a crashed agent's seat stays empty at first; doubles.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// And at most.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// An agent that ran this long crashed for a new reason.
const RAN_WELL: Duration = Duration::from_secs(60);

/// The supervisor's whole life, from taking the machine's lock to the machine's end; returns why it
/// ended. The runtime needs its drivers for time and for input and output.
pub async fn supervise<C: Clock>(machine: &Path, clock: Arc<C>) -> io::Result<SupervisorEnd> {
    let home = MachineDirectory::at(machine.canonicalize()?);
    // Whoever launched it may close its terminal. One that leads a session already has its own.
    let _ = setsid();
    std::env::set_current_dir(home.path())?;
    let life = life_lock::given(&home.lock())?;
    let told = signal(SignalKind::terminate())?;
    let mut supervisor = Supervisor::new(home, clock, told)?;
    supervisor.note(BootPhase::Pending)?;
    let by = supervisor.serve().await;
    tracing::info!(?by, "the machine ends");
    end_all(&BTreeSet::from([supervisor.home.mark()]), &supervisor.users)?;
    supervisor.note(BootPhase::Ended { at: supervisor.clock.now(), by })?;
    // Only now: whoever finds the lock free may remove the machine.
    life.unlock()?;
    Ok(by)
}

struct Supervisor<C> {
    home: MachineDirectory,
    /// The machine's own user, if it has one.
    users: BTreeSet<u32>,
    clock: Arc<C>,
    told: Signal,
    plan: BootPlan,
    boot: BootFile,
    watchdog: Watchdog,
    seat: Seat,
    backoff: Duration,
}

/// When the machine ends at the latest.
#[derive(Clone, Copy, Debug)]
struct Watchdog {
    /// On the clock that never jumps.
    at: Duration,
    /// What the agent asked for.
    ends_by: Option<Timestamp>,
}

impl Watchdog {
    /// Of the agent's wishes the earliest counts.
    fn heed(&mut self, wish: Option<Timestamp>) {
        self.ends_by = [self.ends_by, wish].into_iter().flatten().min();
    }

    fn is_over(self, monotonic: Duration, now: Timestamp) -> Option<SupervisorEnd> {
        if monotonic >= self.at {
            return Some(SupervisorEnd::Watchdog);
        }
        self.ends_by.filter(|by| *by <= now).map(|_| SupervisorEnd::EndsBy)
    }
}

/// Where the agent sits.
enum Seat {
    Empty {
        /// When it is taken again.
        until: Duration,
    },
    Taken {
        agent: Child,
        since: Duration,
    },
}

impl<C: Clock> Supervisor<C> {
    fn new(home: MachineDirectory, clock: Arc<C>, told: Signal) -> io::Result<Self> {
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let record = home.record()?.ok_or_else(|| broken("there is no machine.json"))?;
        let MachineGoal::Up { boot, .. } = record.life else {
            return Err(broken("machine.json does not say that the machine is to be up"));
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
        let seat = Seat::Empty { until: since + record.plan.boot_delay };
        let watchdog = Watchdog { at: since + record.plan.watchdog, ends_by: None };
        let (plan, backoff) = (record.plan, BACKOFF_MIN);
        let users = record.facts.user.into_iter().collect();
        Ok(Self { home, users, clock, told, plan, boot, watchdog, seat, backoff })
    }

    fn note(&mut self, phase: BootPhase) -> io::Result<()> {
        self.boot.phase = phase;
        self.home.write_boot(&self.boot)
    }

    /// Keeps an agent running until something ends the machine.
    async fn serve(&mut self) -> SupervisorEnd {
        loop {
            if let Some(by) = self.is_over() {
                return by;
            }
            self.fill_the_seat();
            let nap = self.nap();
            let agent = match &mut self.seat {
                Seat::Taken { agent, .. } => Some(agent),
                Seat::Empty { .. } => None,
            };
            tokio::select! {
                biased;
                _ = self.told.recv() => return SupervisorEnd::Terminated,
                status = exit_of(agent) => match status {
                    Ok(status) if status.success() => return SupervisorEnd::Agent,
                    status => self.empty_the_seat(status),
                },
                () = self.clock.sleep(nap) => {}
            }
        }
    }

    fn is_over(&mut self) -> Option<SupervisorEnd> {
        self.watchdog.heed(self.home.ends_by());
        self.watchdog.is_over(self.clock.monotonic(), self.clock.now())
    }

    /// Until the next thing that is known to come, or the next look.
    fn nap(&self) -> Duration {
        let now = self.clock.monotonic();
        let seat = match &self.seat {
            Seat::Empty { until } => until.saturating_sub(now),
            Seat::Taken { .. } => LOOK,
        };
        let wish = self.watchdog.ends_by.map_or(LOOK, |by| by.since(self.clock.now()));
        LOOK.min(seat).min(self.watchdog.at.saturating_sub(now)).min(wish)
    }

    /// Starts the agent if it is time. A machine whose agent cannot be started runs all the same.
    fn fill_the_seat(&mut self) {
        let now = self.clock.monotonic();
        if !matches!(&self.seat, Seat::Empty { until } if *until <= now) {
            return;
        }
        match self.start_agent() {
            Ok(agent) => self.seat = Seat::Taken { agent, since: now },
            Err(error) => {
                tracing::warn!(%error, "the agent could not be started");
                self.wait_longer();
            }
        }
        if self.boot.phase == BootPhase::Pending
            && let Err(error) = self.note(BootPhase::Running)
        {
            // Tried again with the next agent; the machine's end does not depend on it.
            self.boot.phase = BootPhase::Pending;
            tracing::warn!(%error, "the boot could not be noted");
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

    fn empty_the_seat(&mut self, status: io::Result<ExitStatus>) {
        match status {
            Ok(status) => tracing::warn!(%status, "the agent crashed"),
            Err(error) => tracing::warn!(%error, "the agent cannot be waited for"),
        }
        if let Seat::Taken { since, .. } = &self.seat
            && self.clock.monotonic().saturating_sub(*since) >= RAN_WELL
        {
            self.backoff = BACKOFF_MIN;
        }
        self.wait_longer();
    }

    fn wait_longer(&mut self) {
        self.seat = Seat::Empty { until: self.clock.monotonic() + self.backoff };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}

/// What tells a machine's agent from its other processes.
pub(super) fn agent_mark(home: &MachineDirectory) -> String {
    format!("{}/agent", home.mark())
}

async fn exit_of(agent: Option<&mut Child>) -> io::Result<ExitStatus> {
    match agent {
        Some(agent) => agent.wait().await,
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
        watchdog.heed(Some(now(1_000)));
        assert_eq!(watchdog.is_over(secs(100), now(100)), Some(SupervisorEnd::Watchdog));
        watchdog.heed(Some(now(50)));
        watchdog.heed(Some(now(80)));
        watchdog.heed(None);
        assert_eq!(watchdog.is_over(secs(49), now(49)), None);
        assert_eq!(watchdog.is_over(secs(50), now(50)), Some(SupervisorEnd::EndsBy));
    }
}
