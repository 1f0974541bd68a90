//! What a life does about its orders: from an assignment to a started listener, from a withdrawal
//! to an acknowledged removal.
//!
//! Not here: what the listener does by itself (`listener`).

use bullpen_core::ids::Generation;
use bullpen_core::mailbox::agent::{Reaction, react};
use bullpen_core::mailbox::{
    Assignment, Inbox, Order, Signal, SignalKind, Withdrawal, WithdrawalMode,
};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;

use super::{
    Action, AgentLife, Clean, Effect, SelfEndReason, Stage, Then, Watched, is_late, job_started,
    signal,
};
use crate::runner::{EndOutcome, ListenerRefusal};

impl AgentLife {
    /// Keeps what was read, unless something newer is known.
    pub(super) fn note(&mut self, inbox: Option<Inbox>, now: Timestamp) {
        if let Some(inbox) = &inbox {
            self.offset.note(inbox.order.issued_at(), now);
        }
        let newest = self.rank();
        if let Some(inbox) = inbox
            && newest.is_none_or(|rank| inbox.order.rank() >= rank)
        {
            self.orders = Some(inbox);
        }
    }

    /// Compares what was done with what is wanted. `fresh` says that the orders were read
    /// consistently just now.
    pub(super) fn look(&mut self, fresh: bool, now: Timestamp, actions: &mut Vec<Action>) {
        let since = self.deserted_since.unwrap_or(now);
        self.deserted_since = self.acted.listener.is_none().then_some(since);
        if let Some(ran) = self.stranger.clone() {
            self.after_a_stranger(ran, fresh, now, actions);
            return;
        }
        let Some(rank) = self.rank() else { return };
        let busy = self.watched.job.is_some();
        match react(&self.acted, self.orders.as_ref(), busy, now) {
            Reaction::Wait => self.idle(fresh, now, actions),
            Reaction::AwaitJob(_) => {}
            // An earlier owner's job is not ended for a newer one: without an acknowledgement the
            // claim fails, and the withdrawal that follows waits for the job.
            Reaction::Start(_) if busy => {}
            Reaction::Start(to) | Reaction::TooLate(to) if self.is_spent(&to) => {
                self.acted.done(rank);
                let said = String::from("the listener is gone, and its credential is used");
                actions.push(signal(SignalKind::ListenerEnded, Some(&to), now, said));
            }
            Reaction::Start(to) if self.acted.listener.is_some() => {
                self.go(Stage::Stopping(Then::Start(to)), Effect::End, actions);
            }
            Reaction::Start(to) => {
                self.begin(to, now, actions);
                if fresh {
                    self.confirm(now, actions);
                }
            }
            Reaction::Adopt(to) => self.adopt(to, now, actions),
            Reaction::TooLate(_) | Reaction::Drain(_) => self.acted.done(rank),
            Reaction::Remove(order) => {
                self.go(Stage::Stopping(Then::Remove(order)), Effect::End, actions);
            }
        }
    }

    /// A listener for this was started before, or its credential is not there any more: it cannot
    /// be started (again), and the owner has to know.
    fn is_spent(&self, to: &Assignment) -> bool {
        let remains = self.remains.as_ref().map(|remains| remains.generation);
        remains == Some(to.generation) || to.credential.is_none()
    }

    /// Nobody wants the machine. Past its deadline it ends, if a consistent read has just shown
    /// that still nobody does.
    fn idle(&mut self, fresh: bool, now: Timestamp, actions: &mut Vec<Action>) {
        if self.idle_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        if fresh {
            self.leave(SelfEndReason::Idle, actions);
        } else {
            actions.push(Action::Read);
        }
    }

    /// When the machine ends because nobody wants it, if that stays so.
    pub(super) fn idle_deadline(&self) -> Option<Timestamp> {
        let Some(Inbox { order: Order::Withdrawn(order), .. }) = &self.orders else { return None };
        if self.acted.listener.is_some() {
            return None;
        }
        let deadline = self.passed(order.idle_deadline);
        match order.mode {
            WithdrawalMode::Stop => Some(deadline),
            // A job may have run past the deadline; the release has its time to go on after it.
            WithdrawalMode::Drain => {
                let since = self.deserted_since.unwrap_or(deadline);
                Some(deadline.max(since.after(self.limits.release_acknowledgement)))
            }
        }
    }

    /// Acknowledges, and looks once more before anything can appear at GitHub.
    pub(super) fn begin(&mut self, to: Assignment, now: Timestamp, actions: &mut Vec<Action>) {
        actions.push(signal(SignalKind::Acknowledged, Some(&to), now, String::new()));
        actions.push(Action::Read);
        self.stage = Stage::Confirming(to);
    }

    /// A consistent read came. A withdrawal may have overtaken the assignment, and past its time
    /// nothing may appear.
    pub(super) fn confirm(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let Stage::Confirming(to) = &self.stage else { return };
        let to = to.clone();
        self.stage = Stage::Ready;
        if !self.is_latest(&to) {
            return;
        }
        if let Some(why) = self.cannot_register(&to, now) {
            self.fail(&to, &ListenerRefusal::here(why), now, actions);
            return;
        }
        actions.retain(|action| *action != Action::Read);
        self.go(Stage::Registering(to.clone()), Effect::Register(to), actions);
    }

    /// Why nothing may appear at GitHub for this. A machine whose clock is behind does not know when
    /// its time to register is over: the control plane may have given it up already.
    fn cannot_register(&self, to: &Assignment, now: Timestamp) -> Option<String> {
        if let Some(behind) = self.offset.behind(self.limits.clock_skew)
            && to.register_by.is_some()
        {
            let behind = behind.as_secs();
            return Some(format!("the machine's clock is wrong: it is at least {behind} s behind"));
        }
        is_late(to, now).then(|| String::from("it could not be registered in time"))
    }

    fn is_latest(&self, to: &Assignment) -> bool {
        self.rank() == Some(Order::Assigned(to.clone()).rank())
    }

    pub(super) fn registered(
        &mut self,
        to: Assignment,
        result: Result<(), ListenerRefusal>,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let refused = result.err().or_else(|| {
            is_late(&to, now).then(|| ListenerRefusal::here("it was registered too late to listen"))
        });
        if let Some(refused) = refused {
            self.go(Stage::Stopping(Then::Fail(to, refused)), Effect::End, actions);
        } else if self.is_latest(&to) {
            self.acted.done(Order::Assigned(to.clone()).rank());
            self.acted.listener = Some(to.clone());
            self.watched = Watched::default();
            self.remains = None;
            self.go(Stage::Launching(to.clone()), Effect::Listen(to), actions);
        } else {
            self.go(Stage::Stopping(Then::Look), Effect::End, actions);
        }
    }

    fn adopt(&mut self, to: Assignment, now: Timestamp, actions: &mut Vec<Action>) {
        actions.push(signal(SignalKind::Acknowledged, Some(&to), now, String::new()));
        if self.watched.listening {
            actions.push(signal(SignalKind::Registered, Some(&to), now, String::new()));
        }
        if let Some(name) = &self.watched.job {
            let ran = self.watched.ran.clone();
            actions.push(job_started(Some(&to), now, name.clone(), ran));
        }
        self.acted.done(Order::Assigned(to.clone()).rank());
        // The inbox's copy may have lost its credential; a takeover is recognised by it.
        let kept = self.acted.listener.take().and_then(|listener| listener.credential);
        let listener = Assignment { credential: to.credential.clone().or(kept), ..to };
        self.acted.listener = Some(listener.clone());
        self.go(Stage::Adopting(listener.clone()), Effect::Adopt(listener), actions);
    }

    pub(super) fn ended(
        &mut self,
        then: Then,
        ended: EndOutcome,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        if ended == EndOutcome::Busy {
            self.spared(&then, now, actions);
            return;
        }
        self.acted.listener = None;
        self.watched = Watched::default();
        match then {
            Then::Start(to) => self.go(Stage::Cleaning(Clean::Start(to)), Effect::Clean, actions),
            Then::Fail(to, refused) => self.fail(&to, &refused, now, actions),
            Then::Remove(order) => {
                if let Some(token) = order.removal_token.clone() {
                    self.go(Stage::Deregistering(order), Effect::Deregister(token), actions);
                } else {
                    let clean = Clean::Removed(order, String::new());
                    self.go(Stage::Cleaning(clean), Effect::Clean, actions);
                }
            }
            Then::Look => {}
            Then::Stranger(to) => {
                let said = String::from("it was given a job of another run");
                actions.push(signal(SignalKind::ListenerEnded, Some(&to), now, said));
                self.remains = Some(to);
            }
        }
    }

    /// A job of another run was started here. Every order is answered with that, and no removal is
    /// acknowledged: whichever control plane asks, the machine can only end.
    fn after_a_stranger(
        &mut self,
        ran: RanJob,
        fresh: bool,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        if let Some(to) = self.acted.listener.clone() {
            self.go(Stage::Stopping(Then::Stranger(to)), Effect::Kill, actions);
            return;
        }
        let Some(inbox) = self.orders.clone() else { return };
        let rank = inbox.order.rank();
        if self.acted.rank.is_some_and(|acted| acted >= rank) {
            self.idle(fresh, now, actions);
            return;
        }
        self.acted.done(rank);
        if let Order::Assigned(to) = &inbox.order {
            let why = ListenerRefusal::here("a job of another run was started on this machine");
            self.fail(to, &why, now, actions);
        }
        // The latest assignment is what a release asks about.
        if let Action::Signal(kind, said) = job_started(None, now, String::new(), Some(ran)) {
            actions.push(Action::Signal(kind, Signal { generation: inbox.assigned, ..said }));
        }
    }

    /// A job turned out to run. What was to end its listener looks again when it is over; one that
    /// seemed not to be registered in time was.
    fn spared(&mut self, then: &Then, now: Timestamp, actions: &mut Vec<Action>) {
        if self.watched.job.is_none() {
            self.watched.job = Some(String::new());
        }
        if let Then::Fail(to, _) = then
            && !self.watched.listening
        {
            self.watched.listening = true;
            actions.push(signal(SignalKind::Registered, Some(to), now, String::new()));
        }
    }

    pub(super) fn fail(
        &mut self,
        to: &Assignment,
        refused: &ListenerRefusal,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        self.acted.done(Order::Assigned(to.clone()).rank());
        let kind = SignalKind::RegistrationFailed;
        actions.push(signal(kind, Some(to), now, refused.report()));
    }

    pub(super) fn removed(
        &mut self,
        order: &Withdrawal,
        said: String,
        at: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        self.remains = None;
        self.acted.done(Order::Withdrawn(order.clone()).rank());
        let generation: Generation = order.generation;
        let removed = Signal { generation, owner: None, at, detail: said, ran: None };
        actions.push(Action::Signal(SignalKind::Removed, removed));
    }
}
