//! What else GitHub answers about a repository and an App: checks, statuses, files, deliveries.
//!
//! Not here: runners and runs (`rest`).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bullpen_core::time::Timestamp;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::access::Caller;
use super::http::{StandInReply, StandInRequest};
use super::json;
use super::protocol::NoticeView;
use super::state::State;
use crate::webhook::hex;

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

/// Answers a call under `/repos/{owner}/{name}`, but not under its `actions`.
pub(super) fn answer(
    ask: &StandInRequest,
    rest: &[&str],
    repository: &str,
    who: &Caller,
    state: &mut State,
    now: Timestamp,
) -> StandInReply {
    match (ask.method.as_str(), rest) {
        ("POST", ["check-runs"]) => check(ask, repository, who, state, now),
        ("GET", ["commits", commit, "check-runs"]) => {
            let name = ask.query.get("check_name");
            let fits = |notice: &&NoticeView| {
                notice.is_check
                    && notice.repository == repository
                    && notice.commit == *commit
                    && name.is_none_or(|name| notice.name == *name)
            };
            let base = state.base.clone();
            let checks = state.notices.iter().filter(fits).map(|it| json::check(it, &base));
            StandInReply::page(ask, "check_runs", checks.collect())
        }
        ("POST", ["statuses", commit]) => status(ask, repository, commit, state, now),
        ("GET", ["contents", path @ ..]) => file(ask, repository, &path.join("/"), state),
        _ => StandInReply::not_found(),
    }
}

fn check(
    ask: &StandInRequest,
    repository: &str,
    who: &Caller,
    state: &mut State,
    now: Timestamp,
) -> StandInReply {
    if !matches!(who, Caller::Installation(_)) {
        return StandInReply::refusal(403, "You must authenticate via a GitHub App.");
    }
    let wish: CheckWish = match ask.read() {
        Ok(wish) => wish,
        Err(refusal) => return refusal,
    };
    let notice = NoticeView {
        id: state.next(),
        repository: repository.to_owned(),
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
}

fn status(
    ask: &StandInRequest,
    repository: &str,
    commit: &str,
    state: &mut State,
    now: Timestamp,
) -> StandInReply {
    let wish: StatusWish = match ask.read() {
        Ok(wish) => wish,
        Err(refusal) => return refusal,
    };
    let text = wish.description.unwrap_or_default();
    let known = ["error", "failure", "pending", "success"].contains(&wish.state.as_str());
    if !known || text.chars().count() > crate::limits::DESCRIPTION_CHARS_MAX {
        return StandInReply::refusal(422, "Validation Failed");
    }
    let notice = NoticeView {
        id: state.next(),
        repository: repository.to_owned(),
        commit: commit.to_owned(),
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
}

fn file(ask: &StandInRequest, repository: &str, path: &str, state: &State) -> StandInReply {
    let found = state.files.get(&(repository.to_owned(), path.to_owned()));
    let Some(text) = found else { return StandInReply::not_found() };
    let hash = digest(&SHA256, text.as_bytes());
    let tag = format!("\"{}\"", hex(hash.as_ref()));
    if ask.seen.as_ref() == Some(&tag) {
        let mut reply = StandInReply::empty(304);
        reply.headers.push(("etag", tag));
        return reply;
    }
    let packed = BASE64_STANDARD.encode(text);
    let mut reply =
        StandInReply::json(200, json::file(repository, path, text.len(), &packed, &state.base));
    reply.headers.push(("etag", tag));
    reply
}

/// Answers a call under `/app/hook/deliveries`.
pub(super) fn deliveries(
    ask: &StandInRequest,
    rest: &[&str],
    state: &mut State,
    now: Timestamp,
) -> StandInReply {
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let size = ask.number("per_page").unwrap_or(30).clamp(1, 100);
            let size = usize::try_from(size).unwrap_or(100);
            let before = ask.number("cursor").unwrap_or(u64::MAX);
            let mut older = state.outbox.log.iter().rev().filter(|parcel| parcel.id < before);
            let page: Vec<_> = older.by_ref().take(size).collect();
            let next = older.next().and(page.last()).map(|last| last.id);
            let mut reply =
                StandInReply::json(200, page.into_iter().map(json::delivery).collect::<Vec<_>>());
            if let Some(cursor) = next {
                let path = "/app/hook/deliveries";
                let query = format!("per_page={size}&cursor={cursor}");
                let link = format!("<http://{}{path}?{query}>; rel=\"next\"", ask.host);
                reply.headers.push(("link", link));
            }
            reply
        }
        ("POST", [id, "attempts"]) => match id.parse().map(|id| state.redeliver(id, now)) {
            Ok(Ok(())) => StandInReply::json(202, serde_json::json!({})),
            _ => StandInReply::not_found(),
        },
        _ => StandInReply::not_found(),
    }
}
