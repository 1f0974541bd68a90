//! The routes under `/_stand-in`: the runners' protocol and a test's requests. `protocol` describes
//! both.
//!
//! Not here: GitHub's own interface (`rest`).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{Request, State as FromState};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{Router, delete, get, post, put};
use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize};

use super::admission::runner_levers;
use super::hooks::Hook;
use super::http::{FromBody, FromPath, RequestHead, StandInReply, text};
use super::levers::Levers;
use super::protocol::{Completed, FileOrder, JobOrder, JobView, Register, Remove};
use super::rest::not_found;
use super::state::{Job, Refused, State};
use super::world::World;
use crate::settings::{Scope, is_loopback};

/// The longest wait for a message or a job.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Both, for programs of this machine alone.
pub(super) fn router(world: &Arc<World>) -> Router<Arc<World>> {
    test_routes(world).nest("/runners", runner_routes(world)).layer(from_fn(refuse_web_pages))
}

/// A page in a browser on this machine must not be able to queue scripts.
async fn refuse_web_pages(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = text(headers, &HOST).unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let is_json =
        text(headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
    if !is_loopback(host) || !(request.body().is_end_stream() || is_json) {
        return StandInReply::refusal(403, "Ask by a loopback address, in JSON").into_response();
    }
    next.run(request).await
}

/// A test's requests.
fn test_routes(world: &Arc<World>) -> Router<Arc<World>> {
    Router::new()
        .route("/jobs", get(jobs).post(submit))
        .route("/jobs/{id}", get(job))
        .route("/jobs/{id}/cancel", post(cancel))
        .route("/jobs/{id}/approve", post(approve))
        .route("/hook", put(set_hook))
        .route("/files", put(put_file))
        .route("/notices", get(notices))
        .route("/runners", get(runners))
        .route("/levers", get(levers).put(set_levers))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(world), require_token))
}

async fn require_token(
    FromState(world): FromState<Arc<World>>,
    head: RequestHead,
    request: Request,
    next: Next,
) -> Response {
    if !world.options.accepts(head.bearer.as_deref()) {
        return refusal(Refused::Credential).into_response();
    }
    next.run(request).await
}

fn is_repository(text: &str) -> bool {
    matches!(Scope::parse(text), Ok(Scope::Repository { .. }))
}

async fn submit(
    FromState(world): FromState<Arc<World>>,
    FromBody(order): FromBody<JobOrder>,
) -> StandInReply {
    if !is_repository(&order.repository) {
        return StandInReply::refusal(422, "repository is not OWNER/NAME");
    }
    StandInReply::json(201, world.act(|state, now| state.submit(order, now)))
}

async fn jobs(FromState(world): FromState<Arc<World>>) -> StandInReply {
    let all = |state: &mut State, _| state.jobs.values().map(Job::view).collect();
    StandInReply::json(200, world.act::<Vec<JobView>>(all))
}

async fn job(
    FromState(world): FromState<Arc<World>>,
    FromPath(id): FromPath<u64>,
    head: RequestHead,
) -> StandInReply {
    let over = world.until(|state, _| match state.jobs.get(&id).map(Job::view) {
        Some(view) if view.conclusion.is_none() => None,
        other => Some(other),
    });
    let wait = pin!(world.sleep(wait(&head)));
    StandInReply::found(match select(pin!(over), wait).await {
        Either::Left((view, _)) => view,
        Either::Right(_) => world.look(|state, _| state.jobs.get(&id).map(Job::view)),
    })
}

async fn cancel(
    FromState(world): FromState<Arc<World>>,
    FromPath(id): FromPath<u64>,
) -> StandInReply {
    done(202, world.act(|state, now| state.cancel(id, now)))
}

async fn approve(
    FromState(world): FromState<Arc<World>>,
    FromPath(id): FromPath<u64>,
) -> StandInReply {
    done(202, world.act(|state, now| state.approve(id, now)))
}

async fn set_hook(
    FromState(world): FromState<Arc<World>>,
    FromBody(hook): FromBody<Hook>,
) -> StandInReply {
    if !hook.is_local() {
        return StandInReply::refusal(422, "url is not on loopback");
    }
    world.act(|state, _| state.outbox.hook = Some(hook));
    StandInReply::empty(204)
}

async fn put_file(
    FromState(world): FromState<Arc<World>>,
    FromBody(FileOrder { repository, path, text }): FromBody<FileOrder>,
) -> StandInReply {
    world.act(|state, _| state.files.insert((repository, path), text));
    StandInReply::empty(204)
}

async fn notices(FromState(world): FromState<Arc<World>>) -> StandInReply {
    StandInReply::json(200, world.look(|state, _| state.notices.clone()))
}

async fn runners(FromState(world): FromState<Arc<World>>) -> StandInReply {
    let all = world.act(|state, now| {
        state.runners.values().map(|runner| runner.view(now)).collect::<Vec<_>>()
    });
    StandInReply::json(200, all)
}

async fn levers(FromState(world): FromState<Arc<World>>) -> StandInReply {
    StandInReply::json(200, world.look(|state, _| state.levers.clone()))
}

async fn set_levers(
    FromState(world): FromState<Arc<World>>,
    FromBody(levers): FromBody<Levers>,
) -> StandInReply {
    world.act(|state, _| state.levers = levers);
    StandInReply::empty(204)
}

fn wait(head: &RequestHead) -> Duration {
    Duration::from_secs(head.number("wait").unwrap_or(0)).min(WAIT_MAX)
}

/// The runners' protocol, which GitHub's outages reach.
fn runner_routes(world: &Arc<World>) -> Router<Arc<World>> {
    Router::new()
        .route("/register", post(register))
        .route("/{id}/message", get(message))
        .route("/{id}/jobs/{job}/started", post(started))
        .route("/{id}/jobs/{job}/completed", post(completed))
        .route("/{id}/session", delete(disconnect))
        .route("/{id}/remove", post(remove))
        .fallback(unknown_runner_call)
        .method_not_allowed_fallback(unknown_runner_call)
        .layer(from_fn_with_state(Arc::clone(world), runner_levers))
}

/// A stranger is not told what there is.
async fn unknown_runner_call(
    FromState(world): FromState<Arc<World>>,
    head: RequestHead,
) -> StandInReply {
    if world.look(|state, _| state.is_ours(session(&head))) {
        StandInReply::not_found()
    } else {
        refusal(Refused::Credential)
    }
}

fn session(head: &RequestHead) -> &str {
    head.bearer.as_deref().unwrap_or_default()
}

async fn register(
    FromState(world): FromState<Arc<World>>,
    FromBody(wish): FromBody<Register>,
) -> StandInReply {
    if world.look(|state, _| state.levers.refuse_credentials) {
        return refusal(Refused::Credential);
    }
    answered(201, world.act(|state, now| state.register(&wish, now)))
}

#[derive(Deserialize)]
struct RunnerPath {
    id: u64,
}

#[derive(Deserialize)]
struct RunnerJobPath {
    id: u64,
    job: u64,
}

async fn started(
    FromState(world): FromState<Arc<World>>,
    FromPath(RunnerJobPath { id, job }): FromPath<RunnerJobPath>,
    head: RequestHead,
) -> StandInReply {
    done(204, world.act(|state, now| state.start(id, session(&head), job, now)))
}

async fn completed(
    FromState(world): FromState<Arc<World>>,
    FromPath(RunnerJobPath { id, job }): FromPath<RunnerJobPath>,
    head: RequestHead,
    FromBody(Completed { conclusion }): FromBody<Completed>,
) -> StandInReply {
    done(204, world.act(|state, now| state.complete(id, session(&head), job, conclusion, now)))
}

async fn disconnect(
    FromState(world): FromState<Arc<World>>,
    FromPath(RunnerPath { id }): FromPath<RunnerPath>,
    head: RequestHead,
) -> StandInReply {
    done(204, world.act(|state, now| state.disconnect(id, session(&head), now)))
}

async fn remove(
    FromState(world): FromState<Arc<World>>,
    FromPath(RunnerPath { id }): FromPath<RunnerPath>,
    FromBody(Remove { token }): FromBody<Remove>,
) -> StandInReply {
    done(204, world.act(|state, now| state.remove(id, token.reveal(), now)))
}

async fn message(
    FromState(world): FromState<Arc<World>>,
    FromPath(RunnerPath { id }): FromPath<RunnerPath>,
    head: RequestHead,
) -> StandInReply {
    let session = session(&head);
    let _waiting = match Waiting::begin(&world, id, session) {
        Ok(waiting) => waiting,
        Err(refused) => return refusal(refused),
    };
    let told = world.until(|state, _| match state.message(id, session) {
        // An outage ends the wait; the next request meets it.
        Ok(None) if state.levers.outage.is_none() => None,
        other => Some(other),
    });
    match select(pin!(told), pin!(world.sleep(wait(&head)))).await {
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
