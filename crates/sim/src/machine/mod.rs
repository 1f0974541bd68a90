//! A simulated machine: one boot, on which the production agent runs over a simulated host.
//!
//! When an agent process dies, the next one starts and finds its predecessor's state (`host`,
//! `runner`). A process that hangs is not polled for a while, or never again; its listener runs on.
//! The agent beats only once in an hour: the mailbox's model computes the beats in between
//! ([`crate::model::mailbox`]).
//!
//! Not here: the agent (`bullpen-agent`), or the cloud ([`crate::model::fleet`]).

use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bullpen_agent::warm_up::{Frequency, Step};
use bullpen_agent::{Agent, AgentTask, SelfEndReason};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Machine as Facts, Ports as _};

use self::host::{BootScript, NotesFile, SimHost, Timer};
use self::runner::Program;
use crate::clock::pass;
use crate::dice::Dice;
use crate::model::fleet::MachineLife;
use crate::storms::Party;
use crate::wire::Wire;
use crate::world::World;

mod behaviour;
mod host;
mod runner;

pub use behaviour::AgentBehaviour;

/// How often a simulated agent really beats and polls.
const SELDOM: Duration = Duration::from_secs(3_600);
/// The latest time at which a process dies or hangs, from its start.
const MISHAP_WITHIN: Duration = Duration::from_secs(900);
/// The latest await at which a process dies, if it dies at an early one.
const AWAITS_MAX: u64 = 60;

/// One boot of a machine.
#[derive(Debug)]
pub(crate) struct Machine {
    facts: Facts,
    name: String,
    world: Weak<World>,
    dice: Dice,
    skew: i64,
    host: SimHost,
}

/// A trouble of an agent process, and its time.
enum Mishap {
    Dies { after: Duration },
    Hangs { after: Since, length: Option<Duration> },
}

/// The start from which the time of a mishap counts.
enum Since {
    Beginning(Duration),
    /// A hang here is the most dangerous: the world may change before the registration is done.
    Registering(Duration),
}

impl Machine {
    /// A machine that has just booted.
    pub(crate) fn new(facts: Facts, world: &Arc<World>) -> Self {
        let name = format!("agent {}", facts.id);
        let dice = Dice::new(world.seed, &name);
        let temper = world.climate().temper;
        let (skew, wrong) = temper.skew(&dice);
        if wrong {
            world.happened("clock minutes off");
            world.ailing().note(&facts.id);
        }
        let clock = world.outside.clock().for_process(Wire::calm(), skew);
        let program_dice = Dice::new(world.seed, &format!("runner {}", facts.id));
        let host = SimHost {
            program: Program::new(facts.id.clone(), world, program_dice),
            watchdog: Arc::new(Timer::new(clock)),
            script: Arc::new(draw_script(world, &dice, temper)),
            notebook: Arc::new(NotesFile::default()),
        };
        Self { facts, name, world: Arc::downgrade(world), dice, skew, host }
    }

    /// Lives until the boot ends, or until it switches itself off.
    pub(crate) async fn live(self, life: MachineLife) {
        let powered_off = tokio::select! {
            biased;
            () = life.ended() => false,
            () = self.run(&life) => true,
        };
        self.host.program.die();
        let Some(world) = self.world.upgrade() else { return };
        world.outside.mailbox().stop_beats(&self.facts.mailbox);
        if powered_off {
            world.happened("machine switched itself off");
            world.outside.fleet().power_off(&self.facts.id);
        }
    }

    async fn run(&self, life: &MachineLife) {
        if let Some(world) = self.world.upgrade()
            && self.dice.chance(world.climate().temper.mute)
        {
            world.happened("machine mute");
            world.ailing().note(&self.facts.id);
            pending::<()>().await;
        }
        tokio::select! {
            biased;
            () = self.host.watchdog.fires() => {}
            () = self.processes(life) => {}
        }
    }

    async fn processes(&self, life: &MachineLife) {
        let mut number = 0_u32;
        while let Some(world) = self.world.upgrade() {
            number += 1;
            let wire = world.wire(
                &format!("{} {number}", self.name),
                world.climate().agents,
                Party::Agent,
                self.facts.zone.as_str(),
            );
            let ended = self.process(&world, &wire, life).await;
            world.outside.mailbox().stop_beats(&self.facts.mailbox);
            world.retire(&wire);
            if ended.is_some() {
                // The watchdog switches the machine off.
                pending::<()>().await;
            }
            world.happened("agent died");
            world.ailing().note(&self.facts.id);
            drop(world);
            pass(self.dice.between(Duration::from_secs(1), Duration::from_secs(4))).await;
        }
    }

    /// One agent process, to its death or to the end of its machine.
    async fn process(
        &self,
        world: &World,
        wire: &Wire,
        life: &MachineLife,
    ) -> Option<SelfEndReason> {
        let clock = world.outside.clock().for_process(wire.clone(), self.skew);
        let mailbox = world.outside.mailbox();
        let agents = mailbox.for_agent(wire.clone(), clock.clone(), world.limits.heartbeat);
        let task = self.task(&world.limits);
        let (agent, interrupter) = Agent::new(agents, clock, self.host.clone(), task);
        let mut mishap = self.draw_mishap(world, wire);
        let mut agent = pin!(agent.polling(SELDOM).live());
        let began = world.outside.clock().elapsed();
        let mut noticed = false;
        loop {
            let is_due = self.mishap_is_due(mishap.as_ref(), began, world);
            tokio::select! {
                biased;
                () = wire.died() => return None,
                () = life.noticed(), if !noticed => {
                    noticed = true;
                    interrupter.interrupted("spot interruption");
                    continue;
                }
                ending = &mut agent => return Some(ending),
                () = is_due => {}
            }
            let temper = world.climate().temper;
            match mishap.take() {
                Some(Mishap::Dies { .. }) if temper.dies > 0 => {
                    wire.kill();
                    return None;
                }
                Some(Mishap::Hangs { length, .. }) if temper.hangs > 0 => {
                    self.hang(world, length).await;
                }
                _ => {}
            }
        }
    }

    /// Returns at the time of the mishap.
    async fn mishap_is_due(&self, mishap: Option<&Mishap>, began: Duration, world: &World) {
        match mishap {
            None => pending().await,
            Some(Mishap::Dies { after } | Mishap::Hangs { after: Since::Beginning(after), .. }) => {
                pass((began + *after).saturating_sub(world.outside.clock().elapsed())).await;
            }
            Some(Mishap::Hangs { after: Since::Registering(after), .. }) => {
                self.host.program.registers().await;
                pass(*after).await;
            }
        }
    }

    /// Hangs the process: it is not polled meanwhile.
    async fn hang(&self, world: &World, length: Option<Duration>) {
        let (mailbox, key) = (world.outside.mailbox(), &self.facts.mailbox);
        world.ailing().note(&self.facts.id);
        mailbox.pause_beats(key);
        let Some(length) = length else {
            world.happened("agent hung for ever");
            return pending().await;
        };
        world.happened("agent hung");
        pass(length).await;
        mailbox.resume_beats(key);
        world.outside.forge().excuse(&self.facts.id);
    }

    fn draw_mishap(&self, world: &World, wire: &Wire) -> Option<Mishap> {
        let temper = world.climate().temper;
        let (dies, hangs) = (self.dice.chance(temper.dies), self.dice.chance(temper.hangs));
        let after = self.dice.between(Duration::ZERO, MISHAP_WITHIN);
        if dies && self.dice.chance(500) {
            wire.die_after(self.dice.below(AWAITS_MAX));
            None
        } else if dies {
            Some(Mishap::Dies { after })
        } else if hangs {
            let length = self.dice.between(Duration::from_secs(1), Duration::from_secs(600));
            let length = (!self.dice.chance(200)).then_some(length);
            let while_registering = self.dice.between(Duration::ZERO, temper.register_max);
            let after = if self.dice.chance(500) {
                Since::Registering(while_registering)
            } else {
                Since::Beginning(after)
            };
            Some(Mishap::Hangs { after, length })
        } else {
            None
        }
    }

    fn task(&self, limits: &Limits) -> AgentTask {
        let step = Step {
            name: String::from("warm-up"),
            program: PathBuf::new(),
            arguments: Vec::new(),
            often: Frequency::EachBoot,
        };
        AgentTask {
            key: self.facts.mailbox.clone(),
            boot: String::from("boot"),
            steps: vec![step],
            limits: Limits { heartbeat: SELDOM, ..limits.clone() },
        }
    }
}

fn draw_script(world: &World, dice: &Dice, temper: AgentBehaviour) -> BootScript {
    let usual = dice.between(Duration::ZERO, temper.warm_up_max);
    if dice.chance(temper.warm_up_fails) {
        world.happened("warm-up failed");
        return BootScript::Fails(usual);
    }
    let (slow, hangs) = (dice.chance(temper.warm_up_slow), dice.chance(temper.warm_up_hangs));
    if slow || hangs {
        world.happened("warm-up overran");
    }
    match (slow, hangs) {
        (_, true) => BootScript::Hangs,
        (true, false) => BootScript::Takes(dice.between(usual, 2 * world.limits.warm_up)),
        (false, false) => BootScript::Takes(usual),
    }
}
