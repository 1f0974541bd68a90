//! A model of the agent on one machine: warm-up, beats, and the production rules for its inbox.
//!
//! What it does about an order is decided by `core::mailbox::agent`; only doing it is modelled. An
//! agent process can die and come back while its listener goes on; what it left on disk tells the
//! next one which listener that is.
//!
//! Not here: the real runner program.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::ids::{Generation, MailboxKey};
use bullpen_core::mailbox::agent::{Acted, Reaction, react};
use bullpen_core::mailbox::{
    Assignment, Beat, Inbox, Order, Phase, SYSTEMIC, Signal, SignalKind, Withdrawal,
};
use bullpen_core::ports::{Clock, Fault, Machine, Mailbox, Read};

use super::fleet::Life;
use super::forge::ForgeModel;
use crate::clock::{SimClock, pass};
use crate::dice::Dice;

/// How an agent behaves.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    /// The longest a warm-up takes.
    pub warm_up_max: Duration,
    /// How many of a thousand warm-ups fail.
    pub warm_up_fails: u32,
    /// The longest a registration takes.
    pub register_max: Duration,
    /// How many of a thousand waits end with the agent's death and restart.
    pub dies: u32,
    /// How many of a thousand machines never say anything.
    pub mute: u32,
    /// How often the inbox is read where no wake-up comes.
    pub poll: Duration,
}

/// One machine's agent.
#[derive(Debug)]
pub struct Agent<M> {
    machine: Machine,
    key: MailboxKey,
    mailbox: M,
    forge: ForgeModel,
    clock: SimClock,
    dice: Dice,
    temper: Temper,
    heartbeat: Duration,
    /// Which listener runs; survives the agent's own death.
    disk: Mutex<Option<Assignment>>,
}

/// What dies with the agent's process.
#[derive(Debug, Default)]
struct Process {
    acted: Acted,
    seq: u64,
}

impl<M: Mailbox> Agent<M> {
    /// The agent of a machine that has just booted.
    pub fn new(
        machine: Machine,
        mailbox: M,
        forge: ForgeModel,
        clock: SimClock,
        dice: Dice,
        temper: Temper,
        heartbeat: Duration,
    ) -> Self {
        let key = machine.mailbox.clone();
        let disk = Mutex::new(None);
        Self { machine, key, mailbox, forge, clock, dice, temper, heartbeat, disk }
    }

    /// Lives until the boot ends, and takes its listener with it.
    pub async fn live(self: Arc<Self>, life: Life) {
        tokio::select! {
            biased;
            () = life.ended() => {}
            () = self.serve() => {}
        }
        if let Some(listener) = self.listener() {
            self.forge.disconnect(&listener.runner);
        }
    }

    fn listener(&self) -> Option<Assignment> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_listener(&self, listener: Option<Assignment>) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    async fn serve(&self) {
        if self.dice.chance(self.temper.mute) {
            return;
        }
        pass(self.dice.between(Duration::ZERO, self.temper.warm_up_max)).await;
        let fails = self.dice.chance(self.temper.warm_up_fails);
        let kind = if fails { SignalKind::WarmUpFailed } else { SignalKind::WarmUpOk };
        self.signal(kind, Generation(0), None, "").await;
        if fails {
            return;
        }
        let mut seq = 0;
        loop {
            seq = self.run_process(seq).await;
            pass(self.dice.between(Duration::from_secs(1), Duration::from_secs(4))).await;
        }
    }

    /// One life of the agent's process; returns the beat it got to.
    async fn run_process(&self, seq: u64) -> u64 {
        let mut process = Process { acted: Acted::default(), seq };
        process.acted.listener = self.listener();
        // The first read must be consistent: an old assignment must not be acted on again.
        let mut read = Read::Consistent;
        let mut next_beat = self.clock.monotonic();
        loop {
            if self.clock.monotonic() >= next_beat {
                self.beat(&mut process).await;
                next_beat = self.clock.monotonic() + self.heartbeat;
            }
            if let Ok(inbox) = self.mailbox.inbox(&self.key, read).await {
                read = Read::Eventual;
                self.act(&mut process, inbox.as_ref()).await;
            }
            if self.dice.chance(self.temper.dies) {
                return process.seq;
            }
            let wait = next_beat.saturating_sub(self.clock.monotonic());
            let wait = wait.clamp(Duration::from_millis(1), self.temper.poll);
            self.mailbox.wait(&self.key, wait).await;
        }
    }

    async fn act(&self, process: &mut Process, inbox: Option<&Inbox>) {
        let listener = process.acted.listener.as_ref();
        let busy = listener.is_some_and(|listener| self.forge.is_busy(&listener.runner));
        let reaction = react(&process.acted, inbox, busy, self.clock.now());
        let rank = match inbox {
            Some(inbox) => inbox.order.rank(),
            None => return,
        };
        match reaction {
            Reaction::Wait | Reaction::AwaitJob(_) => return,
            Reaction::Start(assignment) => self.start(process, assignment).await,
            Reaction::Adopt(assignment) => {
                self.acknowledge(&assignment).await;
                self.listening(process, assignment).await;
            }
            Reaction::TooLate(_) | Reaction::Drain(_) => {}
            Reaction::Remove(withdrawal) => self.remove(process, &withdrawal).await,
        }
        process.acted.done(rank);
    }

    async fn start(&self, process: &mut Process, assignment: Assignment) {
        self.end_listener(process);
        self.acknowledge(&assignment).await;
        pass(self.dice.between(Duration::from_millis(200), self.temper.register_max)).await;
        if !self.is_still_wanted(&assignment).await {
            return;
        }
        match self.forge.register(&assignment.runner, &assignment.label, &self.machine.id) {
            Ok(()) => self.listening(process, assignment).await,
            Err(fault) => {
                let detail = format!("{SYSTEMIC} {fault}");
                let owner = Some(assignment.owner.clone());
                let kind = SignalKind::RegistrationFailed;
                self.signal(kind, assignment.generation, owner, &detail).await;
            }
        }
    }

    /// Registering takes time. Directly before it takes effect the clock and the inbox are looked
    /// at once more: a withdrawal may have come, and past its time a listener must not appear.
    async fn is_still_wanted(&self, assignment: &Assignment) -> bool {
        if assignment.register_by.is_some_and(|by| self.clock.now() >= by) {
            return false;
        }
        match self.mailbox.inbox(&self.key, Read::Consistent).await {
            Ok(Some(Inbox { order: Order::Assigned(latest), .. })) => {
                latest.generation == assignment.generation
            }
            Ok(_) => false,
            Err(_) => true,
        }
    }

    async fn listening(&self, process: &mut Process, assignment: Assignment) {
        self.set_listener(Some(assignment.clone()));
        process.acted.listener = Some(assignment.clone());
        let owner = Some(assignment.owner);
        self.signal(SignalKind::Registered, assignment.generation, owner, "").await;
    }

    async fn acknowledge(&self, assignment: &Assignment) {
        let owner = Some(assignment.owner.clone());
        self.signal(SignalKind::Acknowledged, assignment.generation, owner, "").await;
    }

    async fn remove(&self, process: &mut Process, withdrawal: &Withdrawal) {
        self.end_listener(process);
        pass(self.dice.between(Duration::from_millis(100), Duration::from_secs(2))).await;
        self.signal(SignalKind::Removed, withdrawal.generation, None, "").await;
    }

    fn end_listener(&self, process: &mut Process) {
        if let Some(listener) = process.acted.listener.take() {
            self.forge.disconnect(&listener.runner);
        }
        self.set_listener(None);
    }

    async fn beat(&self, process: &mut Process) {
        process.seq += 1;
        let phase = match &process.acted.listener {
            Some(listener) if self.forge.is_busy(&listener.runner) => Phase::Busy,
            Some(_) => Phase::Listening,
            None => Phase::Waiting,
        };
        let boot = String::from("boot");
        let beat = Beat { seq: process.seq, at: self.clock.now(), phase, boot };
        // A lost beat is followed by the next one.
        let _ = self.mailbox.beat(&self.key, &beat).await;
    }

    /// A signal is sent until it is stored: a lost one would cost a healthy machine.
    async fn signal(
        &self,
        kind: SignalKind,
        generation: Generation,
        owner: Option<bullpen_core::instance::Owner>,
        detail: &str,
    ) {
        let at = self.clock.now();
        let signal = Signal { generation, owner, at, detail: detail.to_owned() };
        while let Err(Fault::Throttled | Fault::Unavailable(_)) =
            self.mailbox.signal(&self.key, kind, &signal).await
        {
            pass(Duration::from_millis(200)).await;
        }
    }
}
