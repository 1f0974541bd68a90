//! What happens to a call before and after its handler: the levers, the caller's credential, the
//! limits on how many calls it may make.
//!
//! Not here: whose a credential is (`access`), or the handlers (`rest`, `control`).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as FromState};
use axum::http::header::{DATE, HeaderValue, USER_AGENT};
use axum::http::{HeaderName, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bullpen_core::time::{Timestamp, to_http_date};

use super::access::{Options, caller};
use super::http::{RequestHead, StandInReply, set_headers, text};
use super::levers::{Levers, Outage, RateLimit};
use super::state::State;
use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);
const VERSION: HeaderName = HeaderName::from_static("x-github-api-version");
const VERSIONS: &[&str] = &["2022-11-28", "2026-03-10"];

/// The connection is closed instead of an answer. A response that has this as an extension is not
/// sent.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection is dropped")]
pub(super) struct Dropped;

impl IntoResponse for Dropped {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}

/// GitHub's interface under its levers.
pub(super) async fn github_levers(
    FromState(world): FromState<Arc<World>>,
    head: RequestHead,
    request: Request,
    next: Next,
) -> Result<Response, Dropped> {
    world.act(|state, _| state.calls += 1);
    let kind = kind(request.method(), request.uri());
    delay_or_drop(&world).await?;
    let refusal = world.act(|state, now| refused_by_lever(&head, state, &world.options, now));
    let response = match refusal {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    let mut response = response;
    world.look(|state, now| date(&mut response, state.levers.dated_earlier_s, now));
    let status = response.status().as_u16();
    world.look(|state, _| *state.answers.entry((kind, status)).or_default() += 1);
    unless_lost(&world)?;
    Ok(response)
}

/// The runners' protocol under the same outages.
pub(super) async fn runner_levers(
    FromState(world): FromState<Arc<World>>,
    request: Request,
    next: Next,
) -> Result<Response, Dropped> {
    delay_or_drop(&world).await?;
    if world.look(|state, _| state.levers.outage.is_some()) {
        return Ok(unavailable().into_response());
    }
    let response = next.run(request).await;
    unless_lost(&world)?;
    Ok(response)
}

/// Waits as long as every answer takes, and drops the call if that is how GitHub is down.
async fn delay_or_drop(world: &World) -> Result<(), Dropped> {
    let slow = world.look(|state, _| state.levers.slow_ms);
    if slow > 0 {
        world.sleep(Duration::from_millis(slow)).await;
    }
    let dropped = world.look(|state, _| state.levers.outage == Some(Outage::Drop));
    if dropped { Err(Dropped) } else { Ok(()) }
}

/// Dates an answer as the lever says; the server dates all others.
fn date(response: &mut Response, earlier_s: i64, now: Timestamp) {
    if earlier_s == 0 {
        return;
    }
    let dated = Timestamp::from_millis(now.as_millis() - earlier_s * 1_000);
    if let Ok(dated) = HeaderValue::from_str(&to_http_date(dated)) {
        response.headers_mut().insert(DATE, dated);
    }
}

/// Drops the call if its answer is to be lost.
fn unless_lost(world: &World) -> Result<(), Dropped> {
    world.look(|state, _| match state.levers.lose_answers {
        0 => Ok(()),
        left => {
            state.levers.lose_answers = left - 1;
            Err(Dropped)
        }
    })
}

fn unavailable() -> StandInReply {
    StandInReply::refusal(503, "Service unavailable")
}

fn refused_by_lever(
    head: &RequestHead,
    state: &State,
    options: &Options,
    now: Timestamp,
) -> Option<StandInReply> {
    let Levers { outage, refuse_credentials, rate_limit, .. } = &state.levers;
    if outage.is_some() {
        return Some(unavailable());
    }
    if *refuse_credentials {
        return Some(StandInReply::refusal(401, "Bad credentials"));
    }
    Some(match (*rate_limit)? {
        RateLimit::Primary => over_budget(head, state, options, now),
        RateLimit::Secondary { retry_after } => secondary_limit(429, retry_after),
    })
}

/// Refuses what GitHub refuses by a request's headers alone.
pub(super) async fn check_client(request: Request, next: Next) -> Response {
    if !request.headers().contains_key(USER_AGENT) {
        let said = "Request forbidden by administrative rules.";
        return StandInReply::refusal(403, said).into_response();
    }
    if let Some(version) = text(request.headers(), &VERSION)
        && !VERSIONS.contains(&version)
    {
        let said = format!("API version {version} is not supported");
        return StandInReply::refusal(400, &said).into_response();
    }
    next.run(request).await
}

/// Lets a call pass whose credential is good and which is within its limits. Its handler finds the
/// caller as an extension.
pub(super) async fn check_caller(
    FromState(world): FromState<Arc<World>>,
    head: RequestHead,
    mut request: Request,
    next: Next,
) -> Response {
    let admitted = world.look(|state, now| {
        let caller = caller(&head, state, &world.options, now)?;
        let fits = count_call(&head, state, &world.options, now);
        let fits = fits.and_then(|()| count_points(&head, request.method(), state, now));
        if fits.is_err() {
            state.limited += 1;
        }
        fits.map(|()| caller)
    });
    match admitted {
        Ok(caller) => request.extensions_mut().insert(caller),
        Err(refusal) => return refusal.into_response(),
    };
    let mut response = next.run(request).await;
    let headers = world.look(|state, now| {
        if response.status() == StatusCode::NOT_MODIFIED {
            // What has not changed is free.
            let used = state.used.entry(head.bearer.clone().unwrap_or_default()).or_default();
            used.1 = used.1.saturating_sub(1);
        }
        limit_headers(&head, state, &world.options, now)
    });
    set_headers(response.headers_mut(), headers);
    response
}

/// What kind of call it is: its method and its path, without whose it is and what is numbered.
fn kind(method: &Method, uri: &Uri) -> String {
    let path: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let rest = match &path[..] {
        ["repos", _, _, rest @ ..] | ["orgs", _, rest @ ..] => rest,
        all => all,
    };
    let place = |part: &&str| if part.parse::<u64>().is_ok() { "{id}" } else { *part }.to_owned();
    let rest: Vec<String> = rest.iter().map(place).collect();
    format!("{method} {}", rest.join("/"))
}

fn hour(now: Timestamp) -> i64 {
    now.as_millis().div_euclid(3_600_000)
}

/// Counts a call, or refuses it if the hour's are used up.
fn count_call(
    head: &RequestHead,
    state: &mut State,
    options: &Options,
    now: Timestamp,
) -> Result<(), StandInReply> {
    let used = state.used.entry(head.bearer.clone().unwrap_or_default()).or_default();
    if used.0 != hour(now) {
        *used = (hour(now), 0);
    }
    if used.1 < options.calls_per_hour {
        used.1 += 1;
        return Ok(());
    }
    Err(over_budget(head, state, options, now))
}

/// Counts a call's points, or refuses it if the minute's are used up.
fn count_points(
    head: &RequestHead,
    method: &Method,
    state: &mut State,
    now: Timestamp,
) -> Result<(), StandInReply> {
    let Some(most) = state.levers.points_per_minute else { return Ok(()) };
    let cost = if method == Method::GET { 1 } else { 5 };
    let spent = state.points.entry(head.bearer.clone().unwrap_or_default()).or_default();
    spent.retain(|(at, _)| now.since(*at) < MINUTE);
    if spent.iter().map(|(_, cost)| cost).sum::<u32>() + cost > most {
        return Err(secondary_limit(403, MINUTE.as_secs()));
    }
    spent.push_back((now, cost));
    Ok(())
}

/// The refusal of a secondary rate limit.
fn secondary_limit(status: u16, retry_after_s: u64) -> StandInReply {
    let said = "You have exceeded a secondary rate limit. Please wait a few minutes before you try \
                again.";
    StandInReply::refusal(status, said).with("retry-after", retry_after_s.to_string())
}

/// The refusal of a primary rate limit.
fn over_budget(
    head: &RequestHead,
    state: &State,
    options: &Options,
    now: Timestamp,
) -> StandInReply {
    let refusal = StandInReply::refusal(403, "API rate limit exceeded for installation ID 1.");
    limit_headers(head, state, options, now).into_iter().fold(refusal, |refusal, (name, value)| {
        let value = if name == "x-ratelimit-remaining" { "0".to_owned() } else { value };
        refusal.with(name, value)
    })
}

fn limit_headers(
    head: &RequestHead,
    state: &State,
    options: &Options,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let bearer = head.bearer.clone().unwrap_or_default();
    let used = state.used.get(&bearer).filter(|used| used.0 == hour(now)).map_or(0, |used| used.1);
    let limit = options.calls_per_hour;
    vec![
        ("x-ratelimit-limit", limit.to_string()),
        ("x-ratelimit-remaining", limit.saturating_sub(used).to_string()),
        ("x-ratelimit-used", used.to_string()),
        ("x-ratelimit-reset", ((hour(now) + 1) * 3600).to_string()),
        ("x-ratelimit-resource", "core".to_owned()),
        ("x-github-request-id", format!("stand-in-{}", state.calls)),
    ]
}
