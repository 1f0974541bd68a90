//! The routes under `/_stand-in`: the runners' protocol and a test's hands. `protocol` describes
//! both.
//!
//! Not here: GitHub's own interface (`rest`).

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use serde::Serialize;

use super::hooks::Hook;
use super::http::{StandInReply, StandInRequest};
use super::levers::Levers;
use super::protocol::{Completed, FileOrder, JobOrder, JobView, Register, Remove};
use super::state::{Job, Refused, State};
use super::world::World;
use crate::settings::Scope;

/// The longest wait for a message or a job.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Whether this is the runners' part: what GitHub's troubles reach.
pub(super) fn is_runners(ask: &StandInRequest) -> bool {
    let path = ask.segments();
    path.len() > 2 && path[1] == "runners"
}

/// A test's hands.
pub(super) async fn hands(ask: &StandInRequest, world: &World) -> StandInReply {
    if !world.options.accepts(ask.bearer.as_deref()) {
        return refusal(Refused::Credential);
    }
    let path = ask.segments();
    match (ask.method.as_str(), &path[1..]) {
        ("POST", ["jobs"]) => match ask.read::<JobOrder>() {
            Ok(order) if !is_repository(&order.repository) => {
                StandInReply::refusal(422, "repository is not OWNER/NAME")
            }
            Ok(order) => StandInReply::json(201, world.act(|state, now| state.submit(order, now))),
            Err(refusal) => refusal,
        },
        ("GET", ["jobs"]) => {
            let all = |state: &mut State, _| state.jobs.values().map(Job::view).collect();
            StandInReply::json(200, world.act::<Vec<JobView>>(all))
        }
        ("GET", ["jobs", id]) => match id.parse() {
            Ok(id) => job(ask, world, id).await,
            Err(_) => StandInReply::not_found(),
        },
        ("POST", ["jobs", id, "cancel"]) => {
            let id = id.parse().unwrap_or_default();
            done(202, world.act(|state, now| state.cancel(id, now)))
        }
        ("POST", ["jobs", id, "approve"]) => {
            let id = id.parse().unwrap_or_default();
            done(202, world.act(|state, now| state.approve(id, now)))
        }
        ("PUT", ["hook"]) => match ask.read::<Hook>() {
            Ok(hook) if !hook.is_local() => StandInReply::refusal(422, "url is not on loopback"),
            Ok(hook) => {
                world.act(|state, _| state.outbox.hook = Some(hook));
                StandInReply::empty(204)
            }
            Err(refusal) => refusal,
        },
        ("PUT", ["files"]) => match ask.read::<FileOrder>() {
            Ok(FileOrder { repository, path, text }) => {
                world.act(|state, _| state.files.insert((repository, path), text));
                StandInReply::empty(204)
            }
            Err(refusal) => refusal,
        },
        ("GET", ["notices"]) => {
            StandInReply::json(200, world.look(|state, _| state.notices.clone()))
        }
        ("GET", ["runners"]) => {
            let all = world.act(|state, now| {
                state.runners.values().map(|runner| runner.view(now)).collect::<Vec<_>>()
            });
            StandInReply::json(200, all)
        }
        ("GET", ["levers"]) => StandInReply::json(200, world.look(|state, _| state.levers.clone())),
        ("PUT", ["levers"]) => match ask.read::<Levers>() {
            Ok(levers) => {
                world.act(|state, _| state.levers = levers);
                StandInReply::empty(204)
            }
            Err(refusal) => refusal,
        },
        _ => StandInReply::not_found(),
    }
}

fn is_repository(text: &str) -> bool {
    matches!(Scope::parse(text), Ok(Scope::Repository { .. }))
}

async fn job(ask: &StandInRequest, world: &World, id: u64) -> StandInReply {
    let over = world.until(|state, _| match state.jobs.get(&id).map(Job::view) {
        Some(view) if view.conclusion.is_none() => None,
        other => Some(other),
    });
    let wait = pin!(world.sleep(wait(ask)));
    let view = match select(pin!(over), wait).await {
        Either::Left((view, _)) => view,
        Either::Right(_) => world.look(|state, _| state.jobs.get(&id).map(Job::view)),
    };
    view.map_or_else(StandInReply::not_found, |view| StandInReply::json(200, view))
}

fn wait(ask: &StandInRequest) -> Duration {
    Duration::from_secs(ask.number("wait").unwrap_or(0)).min(WAIT_MAX)
}

/// The runners' protocol.
pub(super) async fn runners(ask: &StandInRequest, world: &World) -> StandInReply {
    let path = ask.segments();
    let session = ask.bearer.clone().unwrap_or_default();
    let id = || path[2].parse::<u64>().unwrap_or_default();
    match (ask.method.as_str(), &path[2..]) {
        ("POST", ["register"]) => match ask.read::<Register>() {
            Ok(wish) if world.look(|state, _| state.levers.refuse_credentials) => {
                drop(wish);
                refusal(Refused::Credential)
            }
            Ok(wish) => answered(201, world.act(|state, now| state.register(&wish, now))),
            Err(refusal) => refusal,
        },
        ("GET", [_, "message"]) => message(ask, world, id(), &session).await,
        ("POST", [_, "jobs", job, "started"]) => {
            let job = job.parse().unwrap_or_default();
            done(204, world.act(|state, now| state.start(id(), &session, job, now)))
        }
        ("POST", [_, "jobs", job, "completed"]) => match ask.read::<Completed>() {
            Ok(Completed { conclusion }) => {
                let job = job.parse().unwrap_or_default();
                let end =
                    |state: &mut State, now| state.complete(id(), &session, job, conclusion, now);
                done(204, world.act(end))
            }
            Err(refusal) => refusal,
        },
        ("DELETE", [_, "session"]) => {
            done(204, world.act(|state, now| state.disconnect(id(), &session, now)))
        }
        ("POST", [_, "remove"]) => match ask.read::<Remove>() {
            Ok(Remove { token }) => {
                done(204, world.act(|state, now| state.remove(id(), token.reveal(), now)))
            }
            Err(refusal) => refusal,
        },
        _ if world.look(|state, _| state.is_ours(&session)) => StandInReply::not_found(),
        _ => refusal(Refused::Credential),
    }
}

async fn message(ask: &StandInRequest, world: &World, id: u64, session: &str) -> StandInReply {
    let _waiting = match Waiting::begin(world, id, session) {
        Ok(waiting) => waiting,
        Err(refused) => return refusal(refused),
    };
    let told = world.until(|state, _| match state.message(id, session) {
        // An outage ends the wait; the next request meets it.
        Ok(None) if state.levers.outage.is_none() => None,
        other => Some(other),
    });
    match select(pin!(told), pin!(world.sleep(wait(ask)))).await {
        Either::Left((Ok(Some(message)), _)) => StandInReply::json(200, message),
        Either::Left((Err(refused), _)) => refusal(refused),
        Either::Left((Ok(None), _)) | Either::Right(_) => StandInReply::empty(204),
    }
}

/// A runner is heard of for as long as its request waits, also if it hangs up.
struct Waiting<'a> {
    world: &'a World,
    id: u64,
    session: &'a str,
}

impl<'a> Waiting<'a> {
    fn begin(world: &'a World, id: u64, session: &'a str) -> Result<Self, Refused> {
        world.act(|state, now| {
            let runner = state.connected(id, session)?;
            runner.polls += 1;
            runner.seen = now;
            state.assign(now);
            Ok(Self { world, id, session })
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.world.look(|state, now| {
            if let Ok(runner) = state.connected(self.id, self.session) {
                runner.polls = runner.polls.saturating_sub(1);
                runner.seen = now;
            }
        });
    }
}

fn done(status: u16, result: Result<(), Refused>) -> StandInReply {
    match result {
        Ok(()) => StandInReply::empty(status),
        Err(refused) => refusal(refused),
    }
}

fn answered(status: u16, result: Result<impl Serialize, Refused>) -> StandInReply {
    match result {
        Ok(body) => StandInReply::json(status, body),
        Err(refused) => refusal(refused),
    }
}

fn refusal(refused: Refused) -> StandInReply {
    match refused {
        Refused::Credential => StandInReply::refusal(401, "Bad credentials"),
        Refused::Missing => StandInReply::not_found(),
        Refused::Gone => StandInReply::refusal(410, "The runner was deleted"),
        Refused::Conflict => StandInReply::refusal(409, "Conflict"),
        Refused::Busy => StandInReply::refusal(422, "The runner is still running a job"),
    }
}
