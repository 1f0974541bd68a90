//! A fleet of processes: each machine is a process tree of this host with its own directory, and
//! outlives the command that launched it.
//!
//! A running machine has a *supervisor*, which holds the machine's lock, keeps an agent running and
//! kills every process when the machine ends. All its processes have its *mark* in the environment.
//! Many processes of a host may use a stack's directory at once; each may be killed at any time.
//!
//! Not here: the agent (`bullpen-agent`), and limiting processes to the vCPUs of their type.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{
    Clock, Fault, Fleet, Launched, Listing, Machine, Page, Site, StartOutcome, StopOrder, Tag,
};

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

/// The file with the id of the host's boot: no process outlives a boot.
const HOST_BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// How long to wait for the gate: longer than another process needs to kill a stubborn tree.
const GATE_WITHIN: Duration = Duration::from_secs(20);

/// A fleet whose machines are process trees.
pub struct ProcessFleet<C> {
    machines: Arc<Machines<C>>,
    /// Held by the operation under way in this process: one at a time.
    operation: Arc<tokio::sync::Mutex<()>>,
}

impl<C> Clone for ProcessFleet<C> {
    fn clone(&self) -> Self {
        Self { machines: Arc::clone(&self.machines), operation: Arc::clone(&self.operation) }
    }
}

impl<C> std::fmt::Debug for ProcessFleet<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessFleet")
            .field("directory", &self.machines.directory)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> ProcessFleet<C> {
    /// Opens the fleet of this directory, and makes the directory if it is missing.
    pub fn open(settings: FleetSettings, clock: Arc<C>) -> Result<Self, FleetError> {
        let io = |source| FleetError::Io { path: settings.directory.clone(), source };
        for part in ["launches", "trash"] {
            private_directory(&settings.directory.join(part)).map_err(io)?;
        }
        let directory = settings.directory.canonicalize().map_err(io)?;
        let gate = WriteGate::open(&directory.join("fleet"), GATE_WITHIN).map_err(io)?;
        text("the path of the machines", directory.clone().into_os_string())?;
        let host_boot =
            host_boot().map_err(|source| FleetError::NoProc { path: HOST_BOOT.into(), source })?;
        let plan = BootPlan {
            agent: command_line("agent", settings.agent)?,
            environment: settings.environment,
            watchdog: settings.watchdog,
            boot_delay: settings.boot_delay,
        };
        let machines = Machines {
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
            unreadable_launch: OnceLock::new(),
            capacity: Mutex::new(settings.capacity),
            gate: Mutex::new(gate),
            children: Mutex::new(Vec::new()),
        };
        Ok(Self { machines: Arc::new(machines), operation: Arc::default() })
    }

    /// Changes the capacity for this process's next calls.
    pub fn set_capacity(&self, capacity: Capacity) {
        *lock(&self.machines.capacity) = capacity;
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
    /// Runs an operation that blocks on files and processes, on a thread for blocking work.
    ///
    /// An operation continues if the caller drops its future, and this process's next operation
    /// waits for it: a caller that cancels a launch and then terminates all machines must see the
    /// machines of that launch.
    fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Machines<C>) -> Result<T, Fault> + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send {
        let (machines, operation) = (Arc::clone(&self.machines), Arc::clone(&self.operation));
        async move {
            let operation = operation.lock_owned().await;
            let done = tokio::task::spawn_blocking(move || {
                machines.reap();
                let done = work(&machines);
                drop(operation);
                done
            });
            done.await.unwrap_or_else(|error| Err(Fault::Unclassified(error.to_string())))
        }
    }
}

impl<C: Clock + 'static> ProcessFleet<C> {
    /// Lever: warns a machine's agent that the machine will be taken away, as a cloud warns a spot
    /// machine. The agent reports the warning and goes on; the caller ends the machine. An agent
    /// that is just starting may miss it. [`Fault::NotFound`] if the machine has no agent.
    pub fn reclaim(&self, id: &InstanceId) -> impl Future<Output = Result<(), Fault>> + Send {
        let id = id.clone();
        self.work(move |machines| machines.reclaim(&id))
    }
}

/// Processes need nothing before their launch.
impl<C: Clock + 'static> Site for ProcessFleet<C> {}

impl<C: Clock + 'static> Fleet for ProcessFleet<C> {
    fn launch(
        &self,
        request: &LaunchRequest,
    ) -> impl Future<Output = Result<Launched, Fault>> + Send {
        let request = request.clone();
        self.work(move |machines| machines.launch(&request))
    }

    fn start(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, StartOutcome)>, Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |machines| machines.start(&ids))
    }

    fn stop(&self, orders: &[StopOrder]) -> impl Future<Output = Result<(), Fault>> + Send {
        let orders = orders.to_vec();
        self.work(move |machines| machines.stop(&orders))
    }

    fn terminate(&self, ids: &[InstanceId]) -> impl Future<Output = Result<(), Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |machines| machines.terminate(&ids))
    }

    fn tag(&self, ids: &[InstanceId], tag: Tag) -> impl Future<Output = Result<(), Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |machines| machines.tag(&ids, tag))
    }

    /// One page: a host has few machines.
    fn list(&self, _: Option<&str>) -> impl Future<Output = Result<Page<Machine>, Fault>> + Send {
        self.work(|machines| Ok(Page::of(machines.describe(None)?, None)))
    }

    fn describe(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Listing<Machine>, Fault>> + Send {
        let ids = ids.to_vec();
        self.work(move |machines| machines.describe(Some(&ids)))
    }
}
