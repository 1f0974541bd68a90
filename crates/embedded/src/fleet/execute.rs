//! The operations on machines: launch, start, stop, terminate, describe.
//!
//! Not here: the gate and repairs (`machines`), and operations that do not start or stop a machine
//! (`notices`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bullpen_core::class::RunnerClass;
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceId, IntentId};
use bullpen_core::ports::{
    Clock, Fault, Launched, Listing, Machine, MachineState, StartOutcome, StopOrder, Tags,
    Unreadable,
};
use bullpen_core::request::TypePattern;
use bullpen_core::time::Timestamp;

use super::catalogue::{MachineType, NothingFits};
use super::directory::{self, Durability, MachineDirectory, machine_directory};
use super::machines::{FoundMachine, MachineFinding, Machines, Shutdown, fault, lock};
use super::record::{LaunchRecord, MachineFacts, MachineFile, MachineGoal, Version};
use bullpen_agent::machine::{Isolation, UserData};

/// How long to remember a launch at least.
const LAUNCH_REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// Old launches are removed only if there are more launches than this.
const LAUNCHES_KEPT: usize = 256;
/// A file's name has at most 255 bytes, and `.json.new` is appended.
const NAME_BYTES_MAX: usize = 240;
/// Attempts to find an unused id; random ids collide so rarely that eight collisions mean bad
/// entropy.
const ID_TRIES_MAX: u32 = 8;

impl<C: Clock> Machines<C> {
    /// Launches machines up to the capacity, once per intent.
    pub(super) fn launch(&self, request: &LaunchRequest) -> Result<Launched, Fault> {
        let path = self.launches().join(file_name(&request.intent)?);
        self.exclusively(|| {
            if let Some(known) = read(&path)? {
                return self.answer(&known);
            }
            // An open launch that this program cannot read must not be overwritten.
            let _: Option<LaunchRecord> = read(&self.launching())?;
            let record = self.plan_launch(request)?;
            self.forget_launches(record.at);
            let launching = self.launching();
            directory::write(&launching, &record, Durability::PowerCut)
                .map_err(|error| fault(&launching, &error))?;
            if let Some(error) = self.finish_launch()? {
                return Err(self.supervisor_fault(&error));
            }
            self.answer(&record)
        })
    }

    pub(super) fn plan_launch(&self, request: &LaunchRequest) -> Result<LaunchRecord, Fault> {
        let Listing { items: seen, unreadable } = self.repair(None)?;
        self.remove_unrecorded(&seen)?;
        let capacity = lock(&self.capacity).clone();
        let up: Vec<Offering> = seen
            .iter()
            .filter(|machine| machine.is_up())
            .map(|machine| machine.record.facts.offering())
            .collect();
        // An unreadable machine may be up, so it keeps its place.
        let free = free_places(capacity.machines_max, up.len() + unreadable.len());
        let mut in_use: BTreeMap<Offering, u32> = BTreeMap::new();
        for offering in up {
            *in_use.entry(offering).or_default() += 1;
        }
        let count = request.count.min(free);
        let choice = self
            .catalogue
            .choose(request, count, &capacity.out_of, in_use)
            .map_err(|NothingFits| nothing_fits(request))?;
        let at = self.clock.now();
        let mut machines = Vec::new();
        let mut taken = BTreeSet::new();
        let mut users: BTreeSet<u32> =
            seen.iter().filter_map(|machine| machine.record.facts.user).collect();
        for (machine_type, offering) in choice.taken {
            let id = self.new_id(&mut taken)?;
            let user = self.new_user(&mut users)?;
            machines.push(MachineFacts { user, ..facts(id, request, machine_type, offering, at) });
        }
        Ok(LaunchRecord {
            version: Version::CURRENT,
            intent: request.intent.clone(),
            at,
            machines,
            shortages: choice.shortages,
            user_data: self.user_data_of(&request.class)?,
        })
    }

    /// The user data of machines of this class.
    fn user_data_of(&self, class: &RunnerClass) -> Result<String, Fault> {
        let isolation = self.isolation()?;
        if class.scripts.is_empty() && (isolation.is_none() || self.user_data.is_empty()) {
            return Ok(self.user_data.clone());
        }
        let all = UserData::from_text(&self.user_data).map_err(|error| {
            let name = &class.name;
            Fault::Denied(format!(
                "could not add scripts of class {name} to the user data: {error}"
            ))
        })?;
        let with_scripts = UserData { isolation, ..all.of_class(&class.scripts) };
        Ok(with_scripts.to_text())
    }

    /// The isolation in every machine's user data.
    fn isolation(&self) -> Result<Option<Isolation>, Fault> {
        let Some(chosen) = self.chosen() else { return Ok(None) };
        if chosen.refused {
            let why = chosen.lacking().unwrap_or_default();
            return Err(Fault::Denied(format!("isolation is required, and {why}")));
        }
        Ok((chosen.decision.held_by() != "nothing").then(|| chosen.for_agents.clone()))
    }

    /// A user id that no other machine has; `None` if machines have no users of their own.
    fn new_user(&self, taken: &mut BTreeSet<u32>) -> Result<Option<u32>, Fault> {
        let Some(users) = self.chosen().and_then(|chosen| chosen.users) else { return Ok(None) };
        let user = users.pick(taken, self.entropy.next()).ok_or(Fault::NoCapacity)?;
        taken.insert(user);
        Ok(Some(user))
    }

    /// `i-` and 17 hexadecimal digits, like EC2's ids.
    fn new_id(&self, taken: &mut BTreeSet<InstanceId>) -> Result<InstanceId, Fault> {
        for _ in 0..ID_TRIES_MAX {
            let id = InstanceId::new(format!("i-{:017x}", self.entropy.next()));
            let is_free = !self.directory.join(id.as_str()).exists();
            if is_free && taken.insert(id.clone()) {
                return Ok(id);
            }
        }
        Err(Fault::Unclassified("the entropy for ids of machines repeats itself".to_owned()))
    }

    /// Makes the missing machines of the launch in `launching.json`, and moves its file to
    /// `launches`. If a supervisor does not start, its machine is gone; returns the error.
    pub(super) fn finish_launch(&self) -> Result<Option<io::Error>, Fault> {
        let launching = self.launching();
        let Some(record) = read::<LaunchRecord>(&launching)? else { return Ok(None) };
        let mut refused = None;
        for facts in &record.machines {
            let Some(home) = machine_directory(&self.directory, &facts.id) else { continue };
            refused = self.make_machine(home, facts, &record.user_data)?.or(refused);
        }
        let made = self.launches().join(file_name(&record.intent)?);
        fs::rename(&launching, &made).map_err(|error| fault(&made, &error))?;
        if let Some(error) = &refused {
            tracing::warn!(intent = %record.intent, %error, "could not start a launch's supervisor");
        }
        Ok(refused)
    }

    fn make_machine(
        &self,
        home: MachineDirectory,
        facts: &MachineFacts,
        user_data: &str,
    ) -> Result<Option<io::Error>, Fault> {
        let failed = |error| fault(&self.directory.join(facts.id.as_str()), &error);
        if home.record().map_err(failed)?.is_some() {
            // The process that launched it died afterwards. `repair` starts a missing supervisor.
            return Ok(None);
        }
        home.create(&user_data_for(facts, user_data)).map_err(failed)?;
        let record = MachineFile {
            version: Version::CURRENT,
            facts: facts.clone(),
            life: self.new_boot(),
            plan: self.plan.clone(),
            stops: BTreeMap::new(),
            tags: Tags::default(),
        };
        let mut machine = FoundMachine {
            home,
            record,
            state: MachineState::Pending,
            finding: MachineFinding::NotStarted,
        };
        let Err(error) = self.start_supervisor(&mut machine) else { return Ok(None) };
        self.shut_down(vec![(machine, Shutdown::End)])?;
        Ok(Some(error))
    }

    /// A launch's machines in their current states; a forgotten machine is gone.
    fn answer(&self, record: &LaunchRecord) -> Result<Launched, Fault> {
        if record.machines.is_empty() && record.shortages.is_empty() {
            return Err(Fault::NoCapacity);
        }
        let ids: Vec<InstanceId> = record.machines.iter().map(|facts| facts.id.clone()).collect();
        let seen = self.repair(Some(&ids))?.items;
        let now = |facts: &MachineFacts| {
            let found = seen.iter().find(|machine| machine.record.facts.id == facts.id);
            found.map_or_else(
                || facts.machine(MachineState::Gone, Tags::default()),
                FoundMachine::machine,
            )
        };
        let machines = record.machines.iter().map(now);
        let (machines, shortages) = (machines.collect(), record.shortages.clone());
        Ok(Launched { machines, shortages, explanation: None })
    }

    /// Removes launches that are too old for a caller to wait for, and have no directories left.
    fn forget_launches(&self, now: Timestamp) {
        let Ok(entries) = fs::read_dir(self.launches()) else { return };
        let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        if paths.len() <= LAUNCHES_KEPT {
            return;
        }
        for path in paths {
            // Keeps unreadable files: a newer program may have written them.
            let Ok(Some(record)) = read::<LaunchRecord>(&path) else { continue };
            let is_old = now.since(record.at) >= LAUNCH_REMEMBERED;
            let is_there = |facts: &MachineFacts| self.directory.join(facts.id.as_str()).exists();
            if is_old
                && !record.machines.iter().any(is_there)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), %error, "could not remove an old launch");
            }
        }
    }

    /// Starts stopped machines, up to the capacity.
    pub(super) fn start(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<(InstanceId, StartOutcome)>, Fault> {
        self.exclusively(|| {
            let Listing { items: mut seen, unreadable } = self.repair(None)?;
            let capacity = lock(&self.capacity).clone();
            let up = seen.iter().filter(|machine| machine.is_up()).count() + unreadable.len();
            let mut free = free_places(capacity.machines_max, up);
            let mut answers = Vec::new();
            for id in ids {
                let found = seen.iter_mut().find(|machine| machine.record.facts.id == *id);
                let answer = match found {
                    None => StartOutcome::Failed(why_not_started(&unreadable, id)),
                    Some(machine) => match machine.state {
                        MachineState::Pending | MachineState::Running => StartOutcome::Starting,
                        MachineState::Stopping | MachineState::Gone => {
                            StartOutcome::Failed(Fault::NotFound)
                        }
                        MachineState::Stopped
                            if free == 0
                                || capacity.out_of.contains(&machine.record.facts.offering()) =>
                        {
                            StartOutcome::NoCapacity
                        }
                        MachineState::Stopped => {
                            free -= 1;
                            self.start_one(machine)?
                        }
                    },
                };
                answers.push((id.clone(), answer));
            }
            Ok(answers)
        })
    }

    fn start_one(&self, machine: &mut FoundMachine) -> Result<StartOutcome, Fault> {
        machine.record.life = self.new_boot();
        machine.record.plan = self.plan.clone();
        let Err(error) = self.start_supervisor(machine) else { return Ok(StartOutcome::Starting) };
        self.shut_down(vec![(machine.clone(), Shutdown::Stop)])?;
        Ok(StartOutcome::Failed(self.supervisor_fault(&error)))
    }

    /// Carries out each order that is in time, at most once.
    pub(super) fn stop(&self, orders: &[StopOrder]) -> Result<(), Fault> {
        self.exclusively(|| {
            let ids: Vec<InstanceId> = orders.iter().map(|order| order.id.clone()).collect();
            let Listing { items: mut seen, unreadable } = self.repair(Some(&ids))?;
            // Read after the wait for the gate: an order must not take effect after its deadline.
            let now = self.clock.now();
            let mut late = None;
            let mut named = BTreeSet::new();
            for order in orders {
                let found = seen.iter_mut().find(|machine| machine.record.facts.id == order.id);
                let Some(machine) = found else { continue };
                machine.record.stops.retain(|_, until| *until > now);
                if order.until <= now {
                    late = late.or(Some(order));
                } else if machine.record.stops.insert(order.op.clone(), order.until).is_none() {
                    named.insert(order.id.clone());
                }
            }
            let (named, _): (Vec<FoundMachine>, Vec<FoundMachine>) =
                seen.into_iter().partition(|machine| named.contains(&machine.record.facts.id));
            let (up, down): (Vec<FoundMachine>, Vec<FoundMachine>) =
                named.into_iter().partition(FoundMachine::is_up);
            for machine in &down {
                // The operation counts as carried out on a machine that is down already.
                machine
                    .home
                    .write_record(&machine.record)
                    .map_err(|error| fault(machine.home.path(), &error))?;
            }
            self.shut_down(up.into_iter().map(|machine| (machine, Shutdown::Stop)).collect())?;
            late.map_or(Ok(()), |order| Err(too_late(order, now)))?;
            all_readable(unreadable)
        })
    }

    /// Ends machines for good.
    pub(super) fn terminate(&self, ids: &[InstanceId]) -> Result<(), Fault> {
        self.exclusively(|| {
            let Listing { items: seen, unreadable } = self.repair(Some(ids))?;
            let is_left =
                |machine: &FoundMachine| !matches!(machine.record.life, MachineGoal::Gone { .. });
            let left = seen.into_iter().filter(is_left).map(|machine| (machine, Shutdown::End));
            self.shut_down(left.collect())?;
            all_readable(unreadable)
        })
    }

    /// These machines, or all, after repairs.
    pub(super) fn describe(&self, ids: Option<&[InstanceId]>) -> Result<Listing<Machine>, Fault> {
        Ok(self.repaired(ids)?.filter_map(|found| Some(found.machine())))
    }

    pub(super) fn launches(&self) -> PathBuf {
        self.directory.join("launches")
    }

    pub(super) fn launching(&self) -> PathBuf {
        self.directory.join("launching.json")
    }
}

/// The fault of an operation that could not be made for all of its machines.
pub(super) fn all_readable(unreadable: Vec<Unreadable>) -> Result<(), Fault> {
    unreadable.into_iter().next().map_or(Ok(()), |first| Err(first.into()))
}

fn why_not_started(unreadable: &[Unreadable], id: &InstanceId) -> Fault {
    let found = unreadable.iter().find(|machine| machine.key == id.as_str());
    found.map_or(Fault::NotFound, Unreadable::fault)
}

/// A machine's user data: adds the machine's own user and limits, if the data has an isolation.
fn user_data_for(facts: &MachineFacts, user_data: &str) -> String {
    let Ok(data) = UserData::from_text(user_data) else { return user_data.to_owned() };
    let MachineFacts { id, user, vcpu, memory_mib, .. } = facts;
    let own = |held: Isolation| held.of_machine(id.as_str(), *user, *vcpu, *memory_mib);
    UserData { isolation: data.isolation.clone().map(own), ..data }.to_text()
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Fault> {
    directory::read(path).map_err(|error| fault(path, &error))
}

fn free_places(machines_max: Option<u32>, up: usize) -> u32 {
    let up = u32::try_from(up).unwrap_or(u32::MAX);
    machines_max.map_or(u32::MAX, |most| most.saturating_sub(up))
}

fn facts(
    id: InstanceId,
    request: &LaunchRequest,
    machine_type: &MachineType,
    offering: Offering,
    launched_at: Timestamp,
) -> MachineFacts {
    MachineFacts {
        id,
        intent: request.intent.clone(),
        class: request.class.name.clone(),
        pool: request.pool.clone(),
        instance_type: offering.instance_type,
        vcpu: machine_type.vcpu,
        memory_mib: machine_type.memory_mib,
        architecture: machine_type.architecture,
        zone: offering.zone,
        usage: offering.usage,
        launched_at,
        user: None,
    }
}

fn nothing_fits(request: &LaunchRequest) -> Fault {
    let class = &request.class;
    let allowed: Vec<&str> = request.allowed_types.iter().map(TypePattern::as_str).collect();
    Fault::Denied(format!(
        "no machine type has {} to {} vCPUs, {} MiB, {} and matches {allowed:?}; change class {} or \
         the allowed types",
        class.vcpu.min,
        class.vcpu.max,
        class.memory_mib_min,
        class.architecture.as_str(),
        class.name
    ))
}

fn too_late(order: &StopOrder, now: Timestamp) -> Fault {
    let StopOrder { id, op, until } = order;
    Fault::Denied(format!("stop {op} of {id} came at {now}, and must not land after {until}"))
}

/// The name of an intent's file: bytes other than letters, digits and `-_` become `%` and two
/// digits.
fn file_name(intent: &IntentId) -> Result<String, Fault> {
    let mut name = String::new();
    for byte in intent.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02x}").expect("writing to a string cannot fail");
        }
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Fault::Denied(format!("the intent {intent:?} makes no file name")));
    }
    Ok(name + ".json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_intent_has_its_own_file_name() {
        let name = |text: &str| file_name(&IntentId::new(text)).unwrap();
        assert_eq!(name("run-1_a"), "run-1_a.json");
        assert_eq!(name("../a b"), "%2e%2e%2fa%20b.json");
        assert_ne!(name("a.b"), name("a%2eb"));
        assert!(file_name(&IntentId::new("")).is_err());
        assert!(file_name(&IntentId::new("x".repeat(241))).is_err());
    }

    #[test]
    fn free_places_are_never_negative() {
        assert_eq!(free_places(None, 1_000), u32::MAX);
        assert_eq!(free_places(Some(3), 2), 1);
        assert_eq!(free_places(Some(3), 5), 0);
    }
}
