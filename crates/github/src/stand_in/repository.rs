//! What else GitHub answers about a repository and an App: checks, statuses, files, deliveries.
//!
//! Not here: runners and runs (`actions`).

use std::sync::Arc;

use axum::extract::{Extension, State as FromState};
use axum::routing::{Router, get, post};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::access::Caller;
use super::http::{FromBody, FromPath, RequestHead, StandInReply};
use super::json;
use super::protocol::NoticeView;
use super::rest::{CallingApp, VisibleRepository};
use super::world::World;

#[derive(Deserialize)]
struct CheckWish {
    name: String,
    head_sha: String,
    #[serde(default)]
    external_id: Option<String>,
    conclusion: String,
    output: OutputWish,
}

#[derive(Deserialize)]
struct OutputWish {
    title: String,
    summary: String,
}

#[derive(Deserialize)]
struct StatusWish {
    state: String,
    #[serde(default = "default_context")]
    context: String,
    #[serde(default)]
    description: Option<String>,
}

fn default_context() -> String {
    "default".to_owned()
}

/// Routes about a repository that are not under its `actions`.
pub(super) fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/check-runs", post(add_check))
        .route("/commits/{commit}/check-runs", get(checks))
        .route("/statuses/{commit}", post(add_status))
        .route("/contents/{*path}", get(file))
}

/// Routes about the deliveries of an App's webhook.
pub(super) fn delivery_routes() -> Router<Arc<World>> {
    Router::new().route("/", get(deliveries)).route("/{id}/attempts", post(redeliver))
}

#[derive(Deserialize)]
struct CommitPath {
    commit: String,
}

async fn checks(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    FromPath(CommitPath { commit }): FromPath<CommitPath>,
    head: RequestHead,
) -> StandInReply {
    let name = head.query.get("check_name");
    let fits = |notice: &&NoticeView| {
        notice.is_check
            && notice.repository == repository
            && notice.commit == commit
            && name.is_none_or(|name| notice.name == *name)
    };
    let checks = world.look(|state, _| {
        let checks = state.notices.iter().filter(fits);
        checks.map(|check| json::check(check, &state.base)).collect()
    });
    StandInReply::page(&head, "check_runs", checks)
}

async fn add_check(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    Extension(caller): Extension<Caller>,
    FromBody(wish): FromBody<CheckWish>,
) -> StandInReply {
    if !matches!(caller, Caller::Installation(_)) {
        return StandInReply::refusal(403, "You must authenticate via a GitHub App.");
    }
    world.act(|state, now| {
        let notice = NoticeView {
            id: state.next(),
            repository,
            commit: wish.head_sha,
            is_check: true,
            name: wish.name,
            external_id: wish.external_id,
            outcome: wish.conclusion,
            title: wish.output.title,
            text: wish.output.summary,
            at: now,
        };
        let reply = StandInReply::json(201, json::check(&notice, &state.base));
        state.notices.push(notice);
        reply
    })
}

async fn add_status(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    FromPath(CommitPath { commit }): FromPath<CommitPath>,
    FromBody(wish): FromBody<StatusWish>,
) -> StandInReply {
    let text = wish.description.unwrap_or_default();
    let known = ["error", "failure", "pending", "success"].contains(&wish.state.as_str());
    if !known || text.chars().count() > crate::limits::DESCRIPTION_CHARS_MAX {
        return StandInReply::refusal(422, "Validation Failed");
    }
    world.act(|state, now| {
        let notice = NoticeView {
            id: state.next(),
            repository,
            commit,
            is_check: false,
            name: wish.context,
            external_id: None,
            outcome: wish.state,
            title: String::new(),
            text,
            at: now,
        };
        let reply = StandInReply::json(201, json::status(&notice, &state.base));
        state.notices.push(notice);
        reply
    })
}

#[derive(Deserialize)]
struct FilePath {
    path: String,
}

async fn file(
    FromState(world): FromState<Arc<World>>,
    VisibleRepository(repository): VisibleRepository,
    FromPath(FilePath { path }): FromPath<FilePath>,
    head: RequestHead,
) -> StandInReply {
    let key = (repository, path);
    let (found, base) = world.look(|state, _| (state.files.get(&key).cloned(), state.base.clone()));
    let Some(text) = found else { return StandInReply::not_found() };
    let tag = format!("\"{}\"", hex::encode(digest(&SHA256, text.as_bytes())));
    let reply = if head.seen.as_ref() == Some(&tag) {
        StandInReply::empty(304)
    } else {
        let packed = BASE64_STANDARD.encode(&text);
        let (repository, path) = key;
        StandInReply::json(200, json::file(&repository, &path, text.len(), &packed, &base))
    };
    reply.with("etag", tag)
}

async fn deliveries(
    FromState(world): FromState<Arc<World>>,
    _: CallingApp,
    head: RequestHead,
) -> StandInReply {
    let size = head.number("per_page").unwrap_or(30).clamp(1, 100);
    let size = usize::try_from(size).unwrap_or(100);
    let before = head.number("cursor").unwrap_or(u64::MAX);
    world.look(|state, _| {
        let mut older = state.outbox.log.iter().rev().filter(|attempt| attempt.id < before);
        let page: Vec<_> = older.by_ref().take(size).collect();
        let next = older.next().and(page.last()).map(|last| last.id);
        let reply =
            StandInReply::json(200, page.into_iter().map(json::delivery).collect::<Vec<_>>());
        let Some(cursor) = next else { return reply };
        let query = format!("per_page={size}&cursor={cursor}");
        let link = format!("<{}/app/hook/deliveries?{query}>; rel=\"next\"", head.base());
        reply.with("link", link)
    })
}

async fn redeliver(
    FromState(world): FromState<Arc<World>>,
    _: CallingApp,
    FromPath(id): FromPath<u64>,
) -> StandInReply {
    match world.act(|state, now| state.redeliver(id, now)) {
        Ok(()) => StandInReply::json(202, serde_json::json!({})),
        Err(_) => StandInReply::not_found(),
    }
}
