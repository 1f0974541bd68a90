//! A fleet of processes: each machine is a tree of processes of this host, with a directory of its
//! own, that outlives the command that launched it.
//!
//! A machine that is up has a *supervisor*, which holds the machine's lock, keeps an agent running
//! and ends everything when the machine's time is over. Every process of a machine carries its
//! *mark* in the environment. One directory is one stack; any number of processes of one host may
//! use it at once, and any of them may be killed at any time.
//!
//! Not here: what an agent does, or holding processes to the vCPUs and memory of their type.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Clock, Fault, Fleet, Launched, Machine, StartOutcome, StopOrder, Tag};

use crate::write_gate::WriteGate;

mod catalogue;
mod directory;
mod ending;
mod execute;
mod isolation;
mod life_lock;
mod machines;
mod notices;
mod record;
mod settings;
mod supervisor;

#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, MachineType};
pub use isolation::{ChosenIsolation, IsolationSettings, choose};
pub use record::SupervisorEnd;
pub use settings::{Capacity, Entropy, FleetError, FleetSettings};
pub use supervisor::supervise;

use directory::private_directory;
use machines::{Machines, lock};
use record::BootPlan;

/// What names the host's boot: no process outlives it.
const HOST_BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// How long a turn at the machines is waited for: longer than killing a tree that does not want to
/// end takes.
const TURN_WITHIN: Duration = Duration::from_secs(20);

/// Machines as processes.
pub struct ProcessFleet<C> {
    yard: Arc<Machines<C>>,
    /// Whose work is done now, in this process.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl<C> Clone for ProcessFleet<C> {
    fn clone(&self) -> Self {
        Self { yard: Arc::clone(&self.yard), turn: Arc::clone(&self.turn) }
    }
}

impl<C> std::fmt::Debug for ProcessFleet<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessFleet")
            .field("directory", &self.yard.directory)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> ProcessFleet<C> {
    /// Opens the fleet of this directory, and makes the directory if it is not there.
    pub fn open(settings: FleetSettings, clock: Arc<C>) -> Result<Self, FleetError> {
        let io = |source| FleetError::Io { path: settings.directory.clone(), source };
        for part in ["launches", "trash"] {
            private_directory(&settings.directory.join(part)).map_err(io)?;
        }
        let directory = settings.directory.canonicalize().map_err(io)?;
        let door = WriteGate::open(&directory.join("fleet"), TURN_WITHIN).map_err(io)?;
        text("the path of the machines", directory.clone().into_os_string())?;
        let host_boot =
            host_boot().map_err(|source| FleetError::NoProc { path: HOST_BOOT.into(), source })?;
        let plan = BootPlan {
            agent: command_line("agent", settings.agent)?,
            environment: settings.environment,
            watchdog: settings.watchdog,
            boot_delay: settings.boot_delay,
        };
        let yard = Machines {
            clock,
            directory,
            host_boot,
            supervisor: command_line("supervisor", settings.supervisor)?,
            plan,
            user_data: settings.user_data,
            catalogue: settings.catalogue,
            entropy: settings.entropy,
            isolation: settings.isolation,
            chosen: OnceLock::new(),
            capacity: Mutex::new(settings.capacity),
            door: Mutex::new(door),
            children: Mutex::new(Vec::new()),
        };
        Ok(Self { yard: Arc::new(yard), turn: Arc::default() })
    }

    /// From now on there is this much, as far as this process is concerned.
    pub fn set_capacity(&self, capacity: Capacity) {
        *lock(&self.yard.capacity) = capacity;
    }
}

fn text(what: &'static str, text: OsString) -> Result<String, FleetError> {
    text.into_string().map_err(|text| FleetError::NotText { what, text })
}

fn command_line(which: &'static str, words: Vec<OsString>) -> Result<Vec<String>, FleetError> {
    if words.is_empty() {
        return Err(FleetError::NoProgram { which });
    }
    words.into_iter().map(|word| text(which, word)).collect()
}

fn host_boot() -> io::Result<String> {
    fs::read_to_string(Path::new(HOST_BOOT)).map(|text| text.trim().to_owned())
}

impl<C: Clock + 'static> ProcessFleet<C> {
    /// Does work that waits for files and processes where it holds up nobody else.
    ///
    /// Work that was begun goes on when its future is dropped, and what this process asks for next
    /// waits for it: who cancels a launch and then ends every machine must see what it launched.
    fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Machines<C>) -> Result<T, Fault> + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send {
        let (yard, turn) = (Arc::clone(&self.yard), Arc::clone(&self.turn));
        async move {
            let turn = turn.lock_owned().await;
            let done = tokio::task::spawn_blocking(move || {
                yard.reap();
                let done = work(&yard);
                drop(turn);
                done
            });
            done.await.unwrap_or_else(|error| Err(Fault::Unclassified(error.to_string())))
        }
    }
}

impl<C: Clock + 'static> ProcessFleet<C> {
    /// Lever: a machine is told that it will be taken away, as a cloud's spot machine is. It
    /// reports that and lives on; ending it is the caller's. An agent that is only just starting
    /// may not hear it. [`Fault::NotFound`] if no agent runs there.
    pub fn reclaim(&self, id: &InstanceId) -> impl Future<Output = Result<(), Fault>> + Send {
        let id = id.clone();
        self.work(move |yard| yard.reclaim(&id))
    }
}

impl<C: Clock + 'static> Fleet for ProcessFleet<C> {
    fn launch(
        &self,
        request: &LaunchRequest,
    ) -> impl Future<Output = Result<Launched, Fault>> + Send {
        let request = request.clone();
        self.work(move |yard| yard.launch(&request))
    }

    fn start(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, StartOutcome)>, Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |yard| yard.start(&ids))
    }

    fn stop(&self, orders: &[StopOrder]) -> impl Future<Output = Result<(), Fault>> + Send {
        let orders = orders.to_vec();
        self.work(move |yard| yard.stop(&orders))
    }

    fn terminate(&self, ids: &[InstanceId]) -> impl Future<Output = Result<(), Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |yard| yard.terminate(&ids))
    }

    fn tag(&self, ids: &[InstanceId], tag: Tag) -> impl Future<Output = Result<(), Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |yard| yard.tag(&ids, tag))
    }

    fn list(&self) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send {
        self.work(|yard| yard.machines(None))
    }

    fn describe(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |yard| yard.machines(Some(&ids)))
    }
}
