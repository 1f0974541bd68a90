//! Observes the machines of a stack, and repairs what a killed process left.
//!
//! A process changes machines only while it holds the *gate*, and records each operation before it
//! begins: a launch in `launching.json`, a stop or an end in the machine's record. The next process
//! at the gate finishes an interrupted operation; an observer without the gate sees at worst an old
//! state.
//!
//! Not here: the operations (`execute`, `notices`), and the supervisor's own work (`supervisor`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bullpen_agent::runner::tree::MARK;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Clock, Fault, Listing, Machine, MachineState};
use bullpen_core::time::Timestamp;

use super::catalogue::Catalogue;
use super::directory::{MachineDirectory, absent_is_fine, machine_directory};
use super::ending::end_all;
use super::isolation::{ChosenIsolation, IsolationSettings, choose_for_launches};
use super::life_lock;
use super::record::{BootPhase, BootPlan, MachineFile, MachineGoal};
use super::settings::{Capacity, Entropy};
use crate::write_gate::{GateClosed, WriteGate};

/// How long to remember a gone machine: longer than any caller waits for a launch or an end.
pub(super) const TOMBSTONE: Duration = Duration::from_secs(3600);

/// How often to kill the processes again while a supervisor holds its lock.
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
    /// Set once this process has logged that it cannot read the open launch.
    pub(super) unreadable_launch: OnceLock<()>,
    pub(super) capacity: Mutex<Capacity>,
    pub(super) gate: Mutex<WriteGate>,
    /// Supervisors that this process started and has not waited for.
    pub(super) children: Mutex<Vec<Child>>,
}

/// One machine as `observe` found it.
#[derive(Clone, Debug)]
pub(super) struct FoundMachine {
    pub(super) home: MachineDirectory,
    pub(super) record: MachineFile,
    pub(super) state: MachineState,
    pub(super) finding: MachineFinding,
}

/// The repair that a machine needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MachineFinding {
    /// None.
    Fine,
    /// The launching process died before it started the supervisor.
    NotStarted,
    /// The supervisor has died, and other processes of the machine may be left.
    Dead,
    /// The process that stopped or ended the machine died before it had finished.
    Unfinished,
    /// The machine has been gone for longer than [`TOMBSTONE`].
    Expired,
}

/// How to shut a machine down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// It can be started again.
    Stop,
    /// It is gone for good.
    End,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maps the operating system's errors to faults.
pub(super) fn fault(path: &Path, error: &io::Error) -> Fault {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::WouldBlock => Fault::Throttled,
        io::ErrorKind::InvalidData => Fault::Unreadable(format!(
            "{text}; the file was not changed: repair it or move it away"
        )),
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
    /// Runs `inside` while no other process changes machines, after finishing an interrupted
    /// launch that this program can read.
    pub(super) fn exclusively<T>(
        &self,
        inside: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut gate = lock(&self.gate);
        let outcome = gate.pass(|| {
            match self.finish_launch() {
                // A newer process began it, and can finish it. Only launches wait for that.
                Err(Fault::Unreadable(why)) => {
                    let tell = || tracing::warn!(why, "left unreadable launch as it is");
                    self.unreadable_launch.get_or_init(tell);
                }
                finished => drop(finished?),
            }
            inside()
        });
        drop(gate);
        self.empty_trash();
        match outcome {
            Ok(answer) => answer,
            Err(GateClosed::Busy) => Err(Fault::Throttled),
            Err(GateClosed::Io(error)) => Err(fault(&self.directory, &error)),
        }
    }

    /// Waits for supervisors that have ended, so that they do not remain zombies.
    pub(super) fn reap(&self) {
        lock(&self.children).retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Observes these machines, or all; omits machines that do not exist. Names a machine with a file
    /// that this program cannot read, and changes nothing about it.
    pub(super) fn observe(
        &self,
        ids: Option<&[InstanceId]>,
    ) -> Result<Listing<FoundMachine>, Fault> {
        let now = self.clock.now();
        let homes = match ids {
            Some(ids) => {
                let ids: BTreeSet<&InstanceId> = ids.iter().collect();
                ids.into_iter().filter_map(|id| machine_directory(&self.directory, id)).collect()
            }
            None => self.homes().map_err(|error| fault(&self.directory, &error))?,
        };
        let mut all = Vec::new();
        for home in homes {
            match self.observe_one(home.clone(), now) {
                Ok(found) => all.extend(found.map(Ok)),
                // Another process removed the machine meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    all.push(Err(home.unreadable(&error)));
                }
                Err(error) => return Err(fault(&home.machine_file(), &error)),
            }
        }
        Ok(all.into_iter().collect())
    }

    /// The directories of all machines, in the order of their ids.
    fn homes(&self) -> io::Result<Vec<MachineDirectory>> {
        let mut ids = BTreeSet::new();
        for entry in fs::read_dir(&self.directory)? {
            ids.extend(entry?.file_name().to_str().map(InstanceId::new));
        }
        Ok(ids.iter().filter_map(|id| machine_directory(&self.directory, id)).collect())
    }

    fn observe_one(
        &self,
        home: MachineDirectory,
        now: Timestamp,
    ) -> io::Result<Option<FoundMachine>> {
        let Some(record) = home.record()? else { return Ok(None) };
        let (state, finding) = match &record.life {
            MachineGoal::Stopping => (MachineState::Stopping, MachineFinding::Unfinished),
            MachineGoal::Stopped => (MachineState::Stopped, MachineFinding::Fine),
            MachineGoal::Ending => (MachineState::Gone, MachineFinding::Unfinished),
            MachineGoal::Gone { at } if now < at.after(TOMBSTONE) => {
                (MachineState::Gone, MachineFinding::Fine)
            }
            MachineGoal::Gone { .. } => (MachineState::Gone, MachineFinding::Expired),
            MachineGoal::Up { boot, host_boot, spawned } => {
                let is_held = life_lock::is_held(&home.lock())?;
                // Read after the check of the lock: a supervisor writes before it unlocks.
                let phase = home.boot()?.filter(|file| file.id == *boot).map(|file| file.phase);
                let was_not_started = !spawned && phase.is_none() && *host_boot == self.host_boot;
                let finding = match (is_held, was_not_started) {
                    (true, _) => MachineFinding::Fine,
                    (false, true) => MachineFinding::NotStarted,
                    (false, false) => MachineFinding::Dead,
                };
                (state_of(phase), finding)
            }
        };
        Ok(Some(FoundMachine { home, record, state, finding }))
    }

    /// The machines after repairs. Takes the gate only if a machine or a launch needs a repair.
    pub(super) fn repaired(
        &self,
        ids: Option<&[InstanceId]>,
    ) -> Result<Listing<FoundMachine>, Fault> {
        let found = self.observe(ids)?;
        let is_launch_open = || ids.is_none() && self.launching().exists();
        let is_fine = |machine: &FoundMachine| machine.finding == MachineFinding::Fine;
        if found.items.iter().all(is_fine) && !is_launch_open() {
            return Ok(found);
        }
        self.exclusively(|| self.repair(ids))
    }

    /// Repairs these machines, or all, and returns them. The caller holds the gate.
    pub(super) fn repair(
        &self,
        ids: Option<&[InstanceId]>,
    ) -> Result<Listing<FoundMachine>, Fault> {
        let (mut kept, mut left) = (Vec::new(), Vec::new());
        let Listing { items, unreadable } = self.observe(ids)?;
        for mut machine in items {
            match machine.finding {
                MachineFinding::Fine => kept.push(machine),
                MachineFinding::NotStarted => match self.start_supervisor(&mut machine) {
                    Ok(()) => kept.push(machine),
                    Err(error) => {
                        let id = &machine.record.facts.id;
                        tracing::warn!(machine = %id, %error, "could not start the supervisor");
                        left.push((machine, Shutdown::End));
                    }
                },
                MachineFinding::Unfinished if machine.record.life == MachineGoal::Stopping => {
                    left.push((machine, Shutdown::Stop));
                }
                MachineFinding::Dead | MachineFinding::Unfinished => {
                    left.push((machine, Shutdown::End));
                }
                MachineFinding::Expired => {
                    machine.home.remove().map_err(|error| fault(machine.home.path(), &error))?;
                }
            }
        }
        kept.extend(self.shut_down(left)?);
        kept.sort_by(|a, b| a.record.facts.id.cmp(&b.record.facts.id));
        Ok(Listing { items: kept, unreadable })
    }

    /// Removes directories that a power cut or an interrupted removal left without a record. The
    /// caller holds the gate, so that no launch is about to write a record.
    pub(super) fn remove_unrecorded(&self, recorded: &[FoundMachine]) -> Result<(), Fault> {
        let known: BTreeSet<&Path> = recorded.iter().map(|machine| machine.home.path()).collect();
        for home in self.homes().map_err(|error| fault(&self.directory, &error))? {
            let is_empty = || home.record().is_ok_and(|record| record.is_none());
            if !known.contains(home.path()) && is_empty() {
                home.remove().map_err(|error| fault(home.path(), &error))?;
            }
        }
        Ok(())
    }

    /// Removes the files of gone machines. It does not hold the gate: the files may be large.
    fn empty_trash(&self) {
        let Ok(entries) = fs::read_dir(self.trash()) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if let Err(error) = absent_is_fine(fs::remove_dir_all(&path)) {
                // Another process may be removing them too; the next call tries again.
                tracing::debug!(path = %path.display(), %error, "could not remove a machine's files");
            }
        }
    }

    fn trash(&self) -> PathBuf {
        self.directory.join("trash")
    }

    /// Stops or ends these machines, and kills all their processes together. The caller holds the
    /// gate.
    pub(super) fn shut_down(
        &self,
        all: Vec<(FoundMachine, Shutdown)>,
    ) -> Result<Vec<FoundMachine>, Fault> {
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let marks: BTreeSet<String> = all.iter().map(|(machine, _)| machine.home.mark()).collect();
        let mut done = Vec::new();
        for (machine, how) in &all {
            let life = match how {
                Shutdown::Stop => MachineGoal::Stopping,
                Shutdown::End => MachineGoal::Ending,
            };
            let record = MachineFile { life, ..machine.record.clone() };
            machine
                .home
                .write_record(&record)
                .map_err(|error| fault(machine.home.path(), &error))?;
        }
        end_processes(&marks, &all).map_err(|error| fault(&self.directory, &error))?;
        for (mut machine, how) in all {
            self.finish_shutdown(&mut machine, how)
                .map_err(|error| fault(machine.home.path(), &error))?;
            done.push(machine);
        }
        Ok(done)
    }

    /// Records that no process of the machine runs any more.
    fn finish_shutdown(&self, machine: &mut FoundMachine, how: Shutdown) -> io::Result<()> {
        (machine.record.life, machine.state) = match how {
            Shutdown::Stop => (MachineGoal::Stopped, MachineState::Stopped),
            Shutdown::End => {
                machine.home.clear(&self.trash())?;
                self.remove_cgroup(&machine.record.facts.id);
                (MachineGoal::Gone { at: self.clock.now() }, MachineState::Gone)
            }
        };
        machine.finding = MachineFinding::Fine;
        machine.home.write_record(&machine.record)
    }

    /// The isolation of this host's jobs, if it is configured; this process tries the host once.
    pub(super) fn chosen(&self) -> Option<&ChosenIsolation> {
        let settings = self.isolation.as_ref()?;
        Some(self.chosen.get_or_init(|| choose_for_launches(settings, &self.directory)))
    }

    /// Removes a machine's empty cgroup. If that fails, the cgroup costs nothing.
    fn remove_cgroup(&self, id: &InstanceId) {
        if let Some(cgroup) = self.chosen.get().and_then(|chosen| chosen.limits.as_ref().ok()) {
            let _ = fs::remove_dir(cgroup.join(id.as_str()));
        }
    }

    /// Starts a supervisor for the boot in the record. Writes the record before, and again after
    /// with the mark that a supervisor was started.
    pub(super) fn start_supervisor(&self, machine: &mut FoundMachine) -> io::Result<()> {
        let life = life_lock::take(&machine.home.lock())?;
        machine.home.clear_ends_by()?;
        machine.home.write_record(&machine.record)?;
        self.spawn(&machine.home, life)?;
        if let MachineGoal::Up { spawned, .. } = &mut machine.record.life {
            *spawned = true;
        }
        (machine.state, machine.finding) = (MachineState::Pending, MachineFinding::Fine);
        machine.home.write_record(&machine.record)
    }

    /// The supervisor leaves this process's session by itself, and inherits only the lock's file.
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

    /// The goal of a running machine, with a new boot id.
    pub(super) fn new_boot(&self) -> MachineGoal {
        MachineGoal::Up {
            boot: format!("{:016x}", self.entropy.next()),
            host_boot: self.host_boot.clone(),
            spawned: false,
        }
    }

    pub(super) fn supervisor_fault(&self, error: &io::Error) -> Fault {
        // The kernel's answers if there are too many processes, or too little memory for another.
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) {
            return Fault::NoCapacity;
        }
        let program = &self.supervisor[0];
        Fault::Denied(format!(
            "the supervisor {program} could not be started: {error}; check that it exists"
        ))
    }
}

/// Kills the processes with these marks until no supervisor holds its lock: a supervisor that was
/// just started holds its lock before its mark is visible.
fn end_processes(marks: &BTreeSet<String>, all: &[(FoundMachine, Shutdown)]) -> io::Result<()> {
    let users: BTreeSet<u32> =
        all.iter().filter_map(|(machine, _)| machine.record.facts.user).collect();
    for _ in 0..END_TRIES_MAX {
        end_all(marks, &users)?;
        let mut is_any_held = false;
        for (machine, _) in all {
            is_any_held |= life_lock::is_held(&machine.home.lock())?;
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

    /// Whether the machine counts against the capacity.
    pub(super) fn is_up(&self) -> bool {
        match self.state {
            MachineState::Pending | MachineState::Running | MachineState::Stopping => true,
            MachineState::Stopped | MachineState::Gone => false,
        }
    }
}
