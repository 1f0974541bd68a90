//! Where the machines are: taking turns, looking, and setting right what a killed process left.
//!
//! Everything that changes a machine happens behind the *door*, one process at a time. What is
//! begun there is written down first: a launch in `launching.json`, a stop or an end in the
//! machine's own record. So whoever passes the door next finds what was left half done and finishes
//! it, and a look without the door sees nothing worse than a state that lags.
//!
//! Not here: what callers ask for (`deeds`), or the supervisor's side (`supervisor`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bullpen_agent::runner::tree::MARK;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Clock, Fault, Machine, MachineState};
use bullpen_core::time::Timestamp;

use super::catalogue::Catalogue;
use super::directory::{MachineDirectory, absent_is_fine, home_of};
use super::ending::end_all;
use super::isolation::{ChosenIsolation, IsolationSettings, choose_for_launches};
use super::life_lock;
use super::record::{BootPhase, BootPlan, MachineFile, MachineGoal};
use super::settings::{Capacity, Entropy};
use crate::write_gate::{GateClosed, WriteGate};

/// How long a gone machine is remembered: longer than anybody waits for a launch or an end.
pub(super) const TOMBSTONE: Duration = Duration::from_secs(3600);

/// How often processes are ended again while a lock is held.
const END_TRIES_MAX: u32 = 20;

/// The machines of one stack, as one process sees them.
pub(super) struct Machines<C> {
    pub(super) clock: Arc<C>,
    pub(super) directory: PathBuf,
    pub(super) host_boot: String,
    pub(super) supervisor: Vec<String>,
    pub(super) plan: BootPlan,
    pub(super) user_data: String,
    pub(super) catalogue: Catalogue,
    pub(super) entropy: Entropy,
    pub(super) isolation: Option<IsolationSettings>,
    pub(super) chosen: OnceLock<ChosenIsolation>,
    pub(super) capacity: Mutex<Capacity>,
    pub(super) door: Mutex<WriteGate>,
    /// Supervisors this process started, to be waited for once they have ended.
    pub(super) children: Mutex<Vec<Child>>,
}

/// One machine as it was found.
#[derive(Clone, Debug)]
pub(super) struct FoundMachine {
    pub(super) home: MachineDirectory,
    pub(super) record: MachineFile,
    pub(super) state: MachineState,
    pub(super) finding: MachineFinding,
}

/// What is to be done about a machine as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MachineFinding {
    /// Nothing.
    Fine,
    /// Whoever was to start its supervisor did not come to it.
    Unborn,
    /// Its supervisor is no more, and something of it may be left.
    Dead,
    /// Whoever stopped or ended it did not come to the end.
    Unfinished,
    /// It has been gone for long enough.
    Forgettable,
}

/// How a machine is brought down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// To be started again.
    Stop,
    /// For good.
    End,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one table from the system's errors to faults.
pub(super) fn fault(path: &Path, error: &io::Error) -> Fault {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::WouldBlock => Fault::Throttled,
        io::ErrorKind::InvalidData => {
            Fault::Unreadable(format!("{text}; it was left as it is, repair it or move it away"))
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Fault::Denied(format!("{text}; this user must be able to write there"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::TimedOut => {
            Fault::Unavailable(text)
        }
        _ => Fault::Unclassified(text),
    }
}

impl<C: Clock> Machines<C> {
    /// Does something while no other process changes any machine, after having finished a launch
    /// that was left half done.
    pub(super) fn alone<T>(&self, inside: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let mut door = lock(&self.door);
        let passed = door.pass(|| {
            self.finish_launch()?;
            inside()
        });
        drop(door);
        self.empty_trash();
        match passed {
            Ok(answer) => answer,
            Err(GateClosed::Busy) => Err(Fault::Throttled),
            Err(GateClosed::Io(error)) => Err(fault(&self.directory, &error)),
        }
    }

    /// Waits for supervisors that have ended, so that they do not stay as zombies.
    pub(super) fn reap(&self) {
        lock(&self.children).retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// These machines, or all; those that are not there are left out.
    pub(super) fn look(&self, ids: Option<&[InstanceId]>) -> Result<Vec<FoundMachine>, Fault> {
        let now = self.clock.now();
        let homes = match ids {
            Some(ids) => {
                let ids: BTreeSet<&InstanceId> = ids.iter().collect();
                ids.into_iter().filter_map(|id| home_of(&self.directory, id)).collect()
            }
            None => self.homes().map_err(|error| fault(&self.directory, &error))?,
        };
        let mut all = Vec::new();
        for home in homes {
            match self.look_at(home.clone(), now) {
                Ok(seen) => all.extend(seen),
                // Removed while it was looked at.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(fault(&home.machine_file(), &error)),
            }
        }
        Ok(all)
    }

    /// Every machine's directory, by id.
    fn homes(&self) -> io::Result<Vec<MachineDirectory>> {
        let mut ids = BTreeSet::new();
        for entry in fs::read_dir(&self.directory)? {
            ids.extend(entry?.file_name().to_str().map(InstanceId::new));
        }
        Ok(ids.iter().filter_map(|id| home_of(&self.directory, id)).collect())
    }

    fn look_at(&self, home: MachineDirectory, now: Timestamp) -> io::Result<Option<FoundMachine>> {
        let Some(record) = home.record()? else { return Ok(None) };
        let (state, finding) = match &record.life {
            MachineGoal::Stopping => (MachineState::Stopping, MachineFinding::Unfinished),
            MachineGoal::Stopped => (MachineState::Stopped, MachineFinding::Fine),
            MachineGoal::Ending => (MachineState::Gone, MachineFinding::Unfinished),
            MachineGoal::Gone { at } if now < at.after(TOMBSTONE) => {
                (MachineState::Gone, MachineFinding::Fine)
            }
            MachineGoal::Gone { .. } => (MachineState::Gone, MachineFinding::Forgettable),
            MachineGoal::Up { boot, host_boot, spawned } => {
                let is_held = life_lock::is_held(&home.lock())?;
                // Read after the look at the lock: a supervisor writes before it lets go.
                let phase = home.boot()?.filter(|said| said.id == *boot).map(|said| said.phase);
                let never_came = !spawned && phase.is_none() && *host_boot == self.host_boot;
                let finding = match (is_held, never_came) {
                    (true, _) => MachineFinding::Fine,
                    (false, true) => MachineFinding::Unborn,
                    (false, false) => MachineFinding::Dead,
                };
                (state_of(phase), finding)
            }
        };
        Ok(Some(FoundMachine { home, record, state, finding }))
    }

    /// The machines, with nothing left of what is dead. Behind the door only if something is.
    pub(super) fn settled(&self, ids: Option<&[InstanceId]>) -> Result<Vec<FoundMachine>, Fault> {
        let seen = self.look(ids)?;
        let is_launch_open = || ids.is_none() && self.launching().exists();
        if seen.iter().all(|one| one.finding == MachineFinding::Fine) && !is_launch_open() {
            return Ok(seen);
        }
        self.alone(|| self.settle(ids))
    }

    /// The same behind the door.
    pub(super) fn settle(&self, ids: Option<&[InstanceId]>) -> Result<Vec<FoundMachine>, Fault> {
        let (mut kept, mut left) = (Vec::new(), Vec::new());
        for mut one in self.look(ids)? {
            match one.finding {
                MachineFinding::Fine => kept.push(one),
                MachineFinding::Unborn => match self.raise(&mut one) {
                    Ok(()) => kept.push(one),
                    Err(error) => {
                        tracing::warn!(machine = %one.record.facts.id, %error, "it never came up");
                        left.push((one, Shutdown::End));
                    }
                },
                MachineFinding::Unfinished if one.record.life == MachineGoal::Stopping => {
                    left.push((one, Shutdown::Stop));
                }
                MachineFinding::Dead | MachineFinding::Unfinished => {
                    left.push((one, Shutdown::End));
                }
                MachineFinding::Forgettable => {
                    one.home.remove().map_err(|error| fault(one.home.path(), &error))?;
                }
            }
        }
        kept.extend(self.bring_down(left)?);
        kept.sort_by(|a, b| a.record.facts.id.cmp(&b.record.facts.id));
        Ok(kept)
    }

    /// Removes directories that a power cut, or a removal that was cut short, left without a
    /// record. Behind the door no launch is under way that could be about to write one.
    pub(super) fn sweep(&self, seen: &[FoundMachine]) -> Result<(), Fault> {
        let known: BTreeSet<&Path> = seen.iter().map(|one| one.home.path()).collect();
        for home in self.homes().map_err(|error| fault(&self.directory, &error))? {
            let is_empty = || home.record().is_ok_and(|record| record.is_none());
            if !known.contains(home.path()) && is_empty() {
                home.remove().map_err(|error| fault(home.path(), &error))?;
            }
        }
        Ok(())
    }

    /// Removes what machines left, outside the door: it may be large.
    fn empty_trash(&self) {
        let Ok(entries) = fs::read_dir(self.trash()) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if let Err(error) = absent_is_fine(fs::remove_dir_all(&path)) {
                // Another process may be at it as well; what stays is tried again the next time.
                tracing::debug!(path = %path.display(), %error, "a machine's files are still there");
            }
        }
    }

    fn trash(&self) -> PathBuf {
        self.directory.join("trash")
    }

    /// Ends all processes of these machines, in one go.
    pub(super) fn bring_down(
        &self,
        all: Vec<(FoundMachine, Shutdown)>,
    ) -> Result<Vec<FoundMachine>, Fault> {
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let marks: BTreeSet<String> = all.iter().map(|(one, _)| one.home.mark()).collect();
        let mut done = Vec::new();
        for (one, down) in &all {
            let life = match down {
                Shutdown::Stop => MachineGoal::Stopping,
                Shutdown::End => MachineGoal::Ending,
            };
            let record = MachineFile { life, ..one.record.clone() };
            one.home.write_record(&record).map_err(|error| fault(one.home.path(), &error))?;
        }
        end_processes(&marks, &all).map_err(|error| fault(&self.directory, &error))?;
        for (mut one, down) in all {
            self.close(&mut one, down).map_err(|error| fault(one.home.path(), &error))?;
            done.push(one);
        }
        Ok(done)
    }

    /// Writes down that nothing of it runs any more.
    fn close(&self, one: &mut FoundMachine, down: Shutdown) -> io::Result<()> {
        (one.record.life, one.state) = match down {
            Shutdown::Stop => (MachineGoal::Stopped, MachineState::Stopped),
            Shutdown::End => {
                one.home.clear(&self.trash())?;
                self.remove_cgroup(&one.record.facts.id);
                (MachineGoal::Gone { at: self.clock.now() }, MachineState::Gone)
            }
        };
        one.finding = MachineFinding::Fine;
        one.home.write_record(&one.record)
    }

    /// What is allowed here; tried once.
    pub(super) fn chosen(&self) -> Option<&ChosenIsolation> {
        let settings = self.isolation.as_ref()?;
        Some(self.chosen.get_or_init(|| choose_for_launches(settings, &self.directory)))
    }

    /// A cgroup that nothing is in any more. One that stays costs nothing.
    fn remove_cgroup(&self, id: &InstanceId) {
        if let Some(cgroup) = self.chosen.get().and_then(|chosen| chosen.limits.as_ref().ok()) {
            let _ = fs::remove_dir(cgroup.join(id.as_str()));
        }
    }

    /// Starts a supervisor for the boot that the record names. The record is written before, and
    /// says afterwards that one was started.
    pub(super) fn raise(&self, one: &mut FoundMachine) -> io::Result<()> {
        let life = life_lock::take(&one.home.lock())?;
        one.home.clear_ends_by()?;
        one.home.write_record(&one.record)?;
        self.spawn(&one.home, life)?;
        if let MachineGoal::Up { spawned, .. } = &mut one.record.life {
            *spawned = true;
        }
        (one.state, one.finding) = (MachineState::Pending, MachineFinding::Fine);
        one.home.write_record(&one.record)
    }

    /// The supervisor leaves this process's session by itself, and has nothing of ours open but the
    /// lock, which is its own from now on.
    fn spawn(&self, home: &MachineDirectory, life: File) -> io::Result<()> {
        let log = home.log("supervisor.log")?;
        let mut command = Command::new(&self.supervisor[0]);
        command
            .args(&self.supervisor[1..])
            .arg(home.path())
            .env_clear()
            .envs(&self.plan.environment)
            .env(MARK, format!("{}/supervisor", home.mark()))
            .stdin(life)
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn()?;
        lock(&self.children).push(child);
        Ok(())
    }

    /// A boot that was not there before.
    pub(super) fn new_boot(&self) -> MachineGoal {
        MachineGoal::Up {
            boot: format!("{:016x}", self.entropy.next()),
            host_boot: self.host_boot.clone(),
            spawned: false,
        }
    }

    pub(super) fn no_supervisor(&self, error: &io::Error) -> Fault {
        // What the kernel says when there are too many processes, or no memory for one more.
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) {
            return Fault::NoCapacity;
        }
        let program = &self.supervisor[0];
        Fault::Denied(format!(
            "the supervisor {program} could not be started: {error}; check that it is there"
        ))
    }
}

/// A supervisor that was only just started, and could not be found yet, holds its lock.
fn end_processes(marks: &BTreeSet<String>, all: &[(FoundMachine, Shutdown)]) -> io::Result<()> {
    let users: BTreeSet<u32> = all.iter().filter_map(|(one, _)| one.record.facts.user).collect();
    for _ in 0..END_TRIES_MAX {
        end_all(marks, &users)?;
        let mut is_any_held = false;
        for (one, _) in all {
            is_any_held |= life_lock::is_held(&one.home.lock())?;
        }
        if !is_any_held {
            return Ok(());
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "a supervisor without a mark holds its lock"))
}

fn state_of(phase: Option<BootPhase>) -> MachineState {
    match phase {
        None | Some(BootPhase::Pending) => MachineState::Pending,
        Some(BootPhase::Running) => MachineState::Running,
        Some(BootPhase::Ended { .. }) => MachineState::Gone,
    }
}

impl FoundMachine {
    pub(super) fn machine(&self) -> Machine {
        self.record.facts.machine(self.state, self.record.tags)
    }

    /// Whether it takes up room.
    pub(super) fn is_up(&self) -> bool {
        match self.state {
            MachineState::Pending | MachineState::Running | MachineState::Stopping => true,
            MachineState::Stopped | MachineState::Gone => false,
        }
    }
}
