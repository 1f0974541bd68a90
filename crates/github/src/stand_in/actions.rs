//! What GitHub answers about runners, runs and jobs.
//!
//! Not here: what runners and jobs do (`runners`, `jobs`), or other routes of GitHub's (`rest`).

use std::sync::Arc;

use axum::extract::State as FromState;
use axum::routing::{Router, get, post};
use bullpen_core::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::{FromBody, FromPath, RequestHead, StandInReply};
use super::json;
use super::rest::{VisibleRepository, VisibleScope};
use super::state::{GrantKind, Refused, State};
use super::world::World;
use crate::settings::Scope;

/// As many labels as GitHub takes.
const LABELS_MAX: usize = 100;
const NAME_CHARS_MAX: usize = 64;

/// Routes about the runners of an organisation or a repository.
pub(super) fn runner_routes() -> Router<Arc<World>> {
    Router::new()
        .route("/", get(runners))
        .route("/{id}", get(runner).delete(delete_runner))
        .route("/downloads", get(downloads))
        .route("/registration-token", post(registration_token))
        .route("/remove-token", post(removal_token))
        .route("/generate-jitconfig", post(jit))
}

/// Routes about the runs of a repository and their jobs.
pub(super) fn run_routes() -> Router<Arc<World>> {
    Router::new()
        .route("/jobs/{job}", get(job))
        .route("/runs", get(runs))
        .route("/runs/{run}", get(run))
        .route("/runs/{run}/jobs", get(jobs))
        .route("/runs/{run}/attempts/{attempt}/jobs", get(jobs))
        .route("/runs/{run}/cancel", post(cancel))
}

pub(super) async fn runner_groups(
    VisibleScope(scope): VisibleScope,
    head: RequestHead,
) -> StandInReply {
    let Scope::Organization(owner) = scope else { return StandInReply::not_found() };
    StandInReply::page(&head, "runner_groups", json::runner_groups(&owner, &head.host))
}

async fn runners(
    FromState(world): FromState<Arc<World>>,
    VisibleScope(scope): VisibleScope,
    head: RequestHead,
) -> StandInReply {
    let wanted = head.query.get("name");
    let rows = world.act(|state, now| {
        let fits = state
            .runners
            .values()
            .filter(|row| row.scope == scope && wanted.is_none_or(|name| row.name == *name));
        fits.map(|row| json::runner(row, now)).collect()
    });
    StandInReply::page(&head, "runners", rows)
}

#[derive(Deserialize)]
struct RunnerPath {
    id: u64,
}

async fn runner(
    FromState(world): FromState<Arc<World>>,
    VisibleScope(scope): VisibleScope,
    FromPath(RunnerPath { id }): FromPath<RunnerPath>,
) -> StandInReply {
    StandInReply::found(world.act(|state, now| {
        let row = state.runners.get(&id).filter(|row| row.scope == scope);
        row.map(|row| json::runner(row, now))
    }))
}

async fn delete_runner(
    FromState(world): FromState<Arc<World>>,
    VisibleScope(scope): VisibleScope,
    FromPath(RunnerPath { id }): FromPath<RunnerPath>,
) -> StandInReply {
    world.act(|state, _| {
        let name = state.runners.get(&id).map(|row| row.name.clone()).unwrap_or_default();
        match state.delete(&scope, id) {
            Ok(()) => StandInReply::empty(204),
            Err(Refused::Busy) => StandInReply::refusal(
                422,
                &format!("Bad request - Runner \"{name}\" is still running a job\""),
            ),
            Err(_) => StandInReply::not_found(),
        }
    })
}

async fn downloads(_: VisibleScope) -> StandInReply {
    StandInReply::json(200, json::downloads())
}

async fn registration_token(
    FromState(world): FromState<Arc<World>>,
    VisibleScope(scope): VisibleScope,
) -> StandInReply {
    token(&world, GrantKind::Registration, scope)
}

async fn removal_token(
    FromState(world): FromState<Arc<World>>,
    VisibleScope(scope): VisibleScope,
) -> StandInReply {
    token(&world, GrantKind::Removal, scope)
}

fn token(world: &World, kind: GrantKind, scope: Scope) -> StandInReply {
    let (token, expires_at) = world.act(|state, now| state.mint(kind, scope, now));
    StandInReply::json(201, json!({"token": token, "expires_at": expires_at}))
}

#[derive(Deserialize)]
struct JitWish {
    name: String,
    runner_group_id: u64,
    labels: Vec<String>,
}

async fn jit(
    FromState(world): FromState<Arc<World>>,
    VisibleScope(scope): VisibleScope,
    head: RequestHead,
    FromBody(wish): FromBody<JitWish>,
) -> StandInReply {
    let named = (1..=NAME_CHARS_MAX).contains(&wish.name.chars().count());
    if !named || !(1..=LABELS_MAX).contains(&wish.labels.len()) {
        return StandInReply::refusal(422, "Invalid request.\n\nname or labels are out of bounds.");
    }
    let JitWish { name, runner_group_id: group, labels } = wish;
    if !json::is_runner_group(&scope, group) {
        return StandInReply::not_found();
    }
    let url = format!("{}/_stand-in", head.base());
    world.act(|state, now| match state.make_jit(scope, &name, labels, group, &url, now) {
        Ok(row) => {
            let body = json!({"runner": json::runner(row, now), "encoded_jit_config": row.jit});
            StandInReply::json(201, body)
        }
        Err(_) => StandInReply::refusal(
            409,
            &format!("Already exists - A runner with the name {name} already exists."),
        ),
    })
}

#[derive(Deserialize)]
struct JobPath {
    job: u64,
}

async fn job(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    FromPath(JobPath { job }): FromPath<JobPath>,
    head: RequestHead,
) -> StandInReply {
    StandInReply::found(world.act(|state, _| {
        let row = state.jobs.get(&job).filter(|row| row.order.repository == repository);
        row.map(|row| json::job(row, &head.base()))
    }))
}

#[derive(Deserialize)]
struct RunPath {
    run: u64,
    attempt: Option<u32>,
}

/// The jobs of a run's attempt, or of its latest one.
async fn jobs(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    FromPath(RunPath { run, attempt }): FromPath<RunPath>,
    head: RequestHead,
) -> StandInReply {
    let base = head.base();
    let jobs: Vec<Value> = world.act(|state, _| {
        let jobs = state.jobs_of(&repository, run, attempt).into_iter();
        jobs.map(|job| json::job(job, &base)).collect()
    });
    if jobs.is_empty() {
        return StandInReply::not_found();
    }
    StandInReply::page(&head, "jobs", jobs)
}

fn run_json(state: &State, repository: &str, run: u64) -> Option<Value> {
    json::run(&state.jobs_of(repository, run, None), state.place(repository))
}

async fn run(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    FromPath(RunPath { run, .. }): FromPath<RunPath>,
) -> StandInReply {
    StandInReply::found(world.act(|state, _| run_json(state, &repository, run)))
}

async fn runs(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    head: RequestHead,
) -> StandInReply {
    let wanted = head.query.get("status").map(String::as_str);
    let fits = |run: &Value| wanted.is_none_or(|it| run["status"] == it || run["conclusion"] == it);
    let runs = world.act(|state, _| {
        let runs = state.runs_of(&repository).into_iter();
        runs.filter_map(|run| run_json(state, &repository, run)).filter(fits).collect()
    });
    StandInReply::page(&head, "workflow_runs", runs)
}

async fn cancel(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    FromPath(RunPath { run, .. }): FromPath<RunPath>,
) -> StandInReply {
    world.act(|state, now| cancel_jobs(state, &repository, run, now))
}

fn cancel_jobs(state: &mut State, repository: &str, run: u64, now: Timestamp) -> StandInReply {
    let jobs = state.jobs_of(repository, run, None).into_iter();
    let jobs: Vec<u64> = jobs.map(|job| job.id).collect();
    if jobs.is_empty() {
        return StandInReply::not_found();
    }
    let cancelled = jobs.into_iter().filter(|job| state.cancel(*job, now).is_ok()).count();
    if cancelled > 0 {
        StandInReply::json(202, json!({}))
    } else {
        StandInReply::refusal(409, "Cannot cancel a workflow run that is completed.")
    }
}
