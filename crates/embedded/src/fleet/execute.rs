//! What callers ask for: launching, starting, stopping, ending.
//!
//! Not here: taking turns and cleaning up (`machines`), or what leaves a machine as it is
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
    Clock, Fault, Launched, Machine, MachineState, StartOutcome, StopOrder, Tags,
};
use bullpen_core::request::TypePattern;
use bullpen_core::time::Timestamp;

use super::catalogue::{MachineType, NothingFits};
use super::directory::{self, Durability, MachineDirectory, home_of};
use super::machines::{FoundMachine, MachineFinding, Machines, Shutdown, fault, lock};
use super::record::{LaunchRecord, MachineFacts, MachineFile, MachineGoal, Version};
use bullpen_agent::machine::{Isolation, UserData};

/// How long a launch is remembered at least.
const LAUNCH_REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// From this many on, launches are looked through for old ones.
const LAUNCHES_KEPT: usize = 256;
/// A file's name has at most 255 bytes, and `.json.new` is added.
const NAME_BYTES_MAX: usize = 240;
/// An id that is taken already is another try; a second one means that the entropy is none.
const ID_TRIES_MAX: u32 = 8;

impl<C: Clock> Machines<C> {
    /// Launches what there is room for, once per intent.
    pub(super) fn launch(&self, request: &LaunchRequest) -> Result<Launched, Fault> {
        let path = self.launches().join(file_name(&request.intent)?);
        self.alone(|| {
            if let Some(known) = read(&path)? {
                return self.answer(&known);
            }
            let record = self.plan_launch(request)?;
            self.forget_launches(record.at);
            let launching = self.launching();
            directory::write(&launching, &record, Durability::PowerCut)
                .map_err(|error| fault(&launching, &error))?;
            if let Some(error) = self.finish_launch()? {
                return Err(self.no_supervisor(&error));
            }
            self.answer(&record)
        })
    }

    pub(super) fn plan_launch(&self, request: &LaunchRequest) -> Result<LaunchRecord, Fault> {
        let seen = self.settle(None)?;
        self.sweep(&seen)?;
        let capacity = lock(&self.capacity).clone();
        let up: Vec<Offering> =
            seen.iter().filter(|one| one.is_up()).map(|one| one.record.facts.offering()).collect();
        let room = room(capacity.machines_max, up.len());
        let mut in_use: BTreeMap<Offering, u32> = BTreeMap::new();
        for offering in up {
            *in_use.entry(offering).or_default() += 1;
        }
        let count = request.count.min(room);
        let choice = self
            .catalogue
            .choose(request, count, &capacity.out_of, in_use)
            .map_err(|NothingFits| nothing_fits(request))?;
        let at = self.clock.now();
        let mut machines = Vec::new();
        let mut taken = BTreeSet::new();
        let mut users: BTreeSet<u32> =
            seen.iter().filter_map(|one| one.record.facts.user).collect();
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

    /// What machines of this class are told.
    fn user_data_of(&self, class: &RunnerClass) -> Result<String, Fault> {
        let isolation = self.isolation()?;
        if class.scripts.is_empty() && (isolation.is_none() || self.user_data.is_empty()) {
            return Ok(self.user_data.clone());
        }
        let all = UserData::from_text(&self.user_data).map_err(|error| {
            let name = &class.name;
            Fault::Denied(format!("class {name} has scripts that no machine can be told: {error}"))
        })?;
        let told = UserData { isolation, ..all.of_class(&class.scripts) };
        Ok(told.to_text())
    }

    /// What all machines are told of how their jobs are held.
    fn isolation(&self) -> Result<Option<Isolation>, Fault> {
        let Some(chosen) = self.chosen() else { return Ok(None) };
        if chosen.refused {
            let why = chosen.lacking().unwrap_or_default();
            return Err(Fault::Denied(format!("isolation is required, and {why}")));
        }
        Ok((chosen.decision.held_by() != "nothing").then(|| chosen.told.clone()))
    }

    /// A user that no other machine has, where each has one.
    fn new_user(&self, taken: &mut BTreeSet<u32>) -> Result<Option<u32>, Fault> {
        let Some(users) = self.chosen().and_then(|chosen| chosen.users) else { return Ok(None) };
        let user = users.pick(taken, self.entropy.next()).ok_or(Fault::NoCapacity)?;
        taken.insert(user);
        Ok(Some(user))
    }

    /// `i-` and 17 hexadecimal digits, as EC2's.
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

    /// Makes what is missing of the launch that is written down as begun, and notes it as made.
    /// Returns why a supervisor could not be started, if so; its machine is gone then.
    pub(super) fn finish_launch(&self) -> Result<Option<io::Error>, Fault> {
        let launching = self.launching();
        let Some(record) = read::<LaunchRecord>(&launching)? else { return Ok(None) };
        let mut refused = None;
        for facts in &record.machines {
            let Some(home) = home_of(&self.directory, &facts.id) else { continue };
            refused = self.make(home, facts, &record.user_data)?.or(refused);
        }
        let made = self.launches().join(file_name(&record.intent)?);
        fs::rename(&launching, &made).map_err(|error| fault(&made, &error))?;
        if let Some(error) = &refused {
            tracing::warn!(intent = %record.intent, %error, "a launch brought no supervisor up");
        }
        Ok(refused)
    }

    fn make(
        &self,
        home: MachineDirectory,
        facts: &MachineFacts,
        user_data: &str,
    ) -> Result<Option<io::Error>, Fault> {
        let failed = |error| fault(&self.directory.join(facts.id.as_str()), &error);
        if home.record().map_err(failed)?.is_some() {
            // Made before whoever launched it was killed. If it never came up, `settle` sees to it.
            return Ok(None);
        }
        home.furnish(&told_to(facts, user_data)).map_err(failed)?;
        let record = MachineFile {
            version: Version::CURRENT,
            facts: facts.clone(),
            life: self.new_boot(),
            plan: self.plan.clone(),
            stops: BTreeMap::new(),
            tags: Tags::default(),
        };
        let mut one = FoundMachine {
            home,
            record,
            state: MachineState::Pending,
            finding: MachineFinding::Unborn,
        };
        let Err(error) = self.raise(&mut one) else { return Ok(None) };
        self.bring_down(vec![(one, Shutdown::End)])?;
        Ok(Some(error))
    }

    /// A launch's machines as they are now; those that are forgotten are gone.
    fn answer(&self, record: &LaunchRecord) -> Result<Launched, Fault> {
        if record.machines.is_empty() && record.shortages.is_empty() {
            return Err(Fault::NoCapacity);
        }
        let ids: Vec<InstanceId> = record.machines.iter().map(|facts| facts.id.clone()).collect();
        let seen = self.settle(Some(&ids))?;
        let now = |facts: &MachineFacts| {
            let found = seen.iter().find(|one| one.record.facts.id == facts.id);
            found.map_or_else(
                || facts.machine(MachineState::Gone, Tags::default()),
                FoundMachine::machine,
            )
        };
        let machines = record.machines.iter().map(now);
        let (machines, shortages) = (machines.collect(), record.shortages.clone());
        Ok(Launched { machines, shortages, said: None })
    }

    /// Removes launches that nobody can be waiting for and that have nothing left.
    fn forget_launches(&self, now: Timestamp) {
        let Ok(entries) = fs::read_dir(self.launches()) else { return };
        let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        if paths.len() <= LAUNCHES_KEPT {
            return;
        }
        for path in paths {
            // One that cannot be read is kept: it may be a newer program's.
            let Ok(Some(record)) = read::<LaunchRecord>(&path) else { continue };
            let is_old = now.since(record.at) >= LAUNCH_REMEMBERED;
            let is_there = |facts: &MachineFacts| self.directory.join(facts.id.as_str()).exists();
            if is_old
                && !record.machines.iter().any(is_there)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), %error, "an old launch could not be removed");
            }
        }
    }

    /// Starts stopped machines, while there is room.
    pub(super) fn start(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<(InstanceId, StartOutcome)>, Fault> {
        self.alone(|| {
            let mut seen = self.settle(None)?;
            let capacity = lock(&self.capacity).clone();
            let mut room =
                room(capacity.machines_max, seen.iter().filter(|one| one.is_up()).count());
            let mut answers = Vec::new();
            for id in ids {
                let found = seen.iter_mut().find(|one| one.record.facts.id == *id);
                let answer = match found {
                    None => StartOutcome::Failed(Fault::NotFound),
                    Some(one) => match one.state {
                        MachineState::Pending | MachineState::Running => StartOutcome::Starting,
                        MachineState::Stopping | MachineState::Gone => {
                            StartOutcome::Failed(Fault::NotFound)
                        }
                        MachineState::Stopped
                            if room == 0
                                || capacity.out_of.contains(&one.record.facts.offering()) =>
                        {
                            StartOutcome::NoCapacity
                        }
                        MachineState::Stopped => {
                            room -= 1;
                            self.start_one(one)?
                        }
                    },
                };
                answers.push((id.clone(), answer));
            }
            Ok(answers)
        })
    }

    fn start_one(&self, one: &mut FoundMachine) -> Result<StartOutcome, Fault> {
        one.record.life = self.new_boot();
        one.record.plan = self.plan.clone();
        let Err(error) = self.raise(one) else { return Ok(StartOutcome::Starting) };
        self.bring_down(vec![(one.clone(), Shutdown::Stop)])?;
        Ok(StartOutcome::Failed(self.no_supervisor(&error)))
    }

    /// Carries out each order that is in time, once.
    pub(super) fn stop(&self, orders: &[StopOrder]) -> Result<(), Fault> {
        self.alone(|| {
            let ids: Vec<InstanceId> = orders.iter().map(|order| order.id.clone()).collect();
            let mut seen = self.settle(Some(&ids))?;
            // After the wait for the door: what counts is when it lands.
            let now = self.clock.now();
            let mut late = None;
            let mut named = BTreeSet::new();
            for order in orders {
                let found = seen.iter_mut().find(|one| one.record.facts.id == order.id);
                let Some(one) = found else { continue };
                one.record.stops.retain(|_, until| *until > now);
                if order.until <= now {
                    late = late.or(Some(order));
                } else if one.record.stops.insert(order.op.clone(), order.until).is_none() {
                    named.insert(order.id.clone());
                }
            }
            let (named, _): (Vec<FoundMachine>, Vec<FoundMachine>) =
                seen.into_iter().partition(|one| named.contains(&one.record.facts.id));
            let (up, down): (Vec<FoundMachine>, Vec<FoundMachine>) =
                named.into_iter().partition(FoundMachine::is_up);
            for one in &down {
                // What is down already has had this operation too.
                one.home
                    .write_record(&one.record)
                    .map_err(|error| fault(one.home.path(), &error))?;
            }
            self.bring_down(up.into_iter().map(|one| (one, Shutdown::Stop)).collect())?;
            late.map_or(Ok(()), |order| Err(too_late(order, now)))
        })
    }

    /// Ends machines for good.
    pub(super) fn terminate(&self, ids: &[InstanceId]) -> Result<(), Fault> {
        self.alone(|| {
            let seen = self.settle(Some(ids))?;
            let is_left = |one: &FoundMachine| !matches!(one.record.life, MachineGoal::Gone { .. });
            let left = seen.into_iter().filter(is_left).map(|one| (one, Shutdown::End));
            self.bring_down(left.collect()).map(|_| ())
        })
    }

    /// These machines, or all.
    pub(super) fn machines(&self, ids: Option<&[InstanceId]>) -> Result<Vec<Machine>, Fault> {
        let seen = self.settled(ids)?;
        Ok(seen.iter().map(FoundMachine::machine).collect())
    }

    pub(super) fn launches(&self) -> PathBuf {
        self.directory.join("launches")
    }

    pub(super) fn launching(&self) -> PathBuf {
        self.directory.join("launching.json")
    }
}

/// What this machine is told: its own user and limits, where it has any.
fn told_to(facts: &MachineFacts, user_data: &str) -> String {
    let Ok(data) = UserData::from_text(user_data) else { return user_data.to_owned() };
    let MachineFacts { id, user, vcpu, memory_mib, .. } = facts;
    let own = |held: Isolation| held.of_machine(id.as_str(), *user, *vcpu, *memory_mib);
    UserData { isolation: data.isolation.clone().map(own), ..data }.to_text()
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Fault> {
    directory::read(path).map_err(|error| fault(path, &error))
}

fn room(machines_max: Option<u32>, up: usize) -> u32 {
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

/// An intent's file: everything but letters, digits and `-_` is written as `%` and two digits.
fn file_name(intent: &IntentId) -> Result<String, Fault> {
    let mut name = String::new();
    for byte in intent.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02x}").expect("a string takes all that is written to it");
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
    fn intents_are_file_names_of_their_own() {
        let name = |text: &str| file_name(&IntentId::new(text)).unwrap();
        assert_eq!(name("run-1_a"), "run-1_a.json");
        assert_eq!(name("../a b"), "%2e%2e%2fa%20b.json");
        assert_ne!(name("a.b"), name("a%2eb"));
        assert!(file_name(&IntentId::new("")).is_err());
        assert!(file_name(&IntentId::new("x".repeat(241))).is_err());
    }

    #[test]
    fn room_is_what_is_left_and_never_less_than_none() {
        assert_eq!(room(None, 1_000), u32::MAX);
        assert_eq!(room(Some(3), 2), 1);
        assert_eq!(room(Some(3), 5), 0);
    }
}
