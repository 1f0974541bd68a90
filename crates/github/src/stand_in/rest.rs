//! GitHub's own interface, as far as we use it.
//!
//! Not here: the runners' protocol and a test's hands (`control`).

use std::time::Duration;

use bullpen_core::time::Timestamp;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{Caller, KnownApp, Options, caller};
use super::http::{StandInReply, StandInRequest};
use super::json;
use super::repository;
use super::state::{GrantKind, Refused, State};
use crate::settings::Scope;

const MINUTE: Duration = Duration::from_secs(60);
const VERSIONS: &[&str] = &["2022-11-28", "2026-03-10"];
/// As many labels as GitHub takes.
const LABELS_MAX: usize = 100;
const NAME_CHARS_MAX: usize = 64;

/// Answers one call.
pub(super) fn answer(
    ask: &StandInRequest,
    state: &mut State,
    options: &Options,
    now: Timestamp,
) -> StandInReply {
    if !ask.has_agent {
        return StandInReply::refusal(403, "Request forbidden by administrative rules.");
    }
    if let Some(version) = &ask.version
        && !VERSIONS.contains(&version.as_str())
    {
        return StandInReply::refusal(400, &format!("API version {version} is not supported"));
    }
    if let (["apps", slug], None) = (&*ask.segments(), &ask.bearer) {
        return public_app(ask, slug, state, options, now);
    }
    let who = match caller(ask, state, options, now) {
        Ok(who) => who,
        Err(refusal) => return refusal,
    };
    let fits = budget(ask, state, options, now).and_then(|()| points(ask, state, now));
    if let Err(refusal) = fits {
        state.limited += 1;
        return refusal;
    }
    let mut reply = route(ask, state, options, &who, now);
    if reply.status == 304 {
        // What has not changed is free.
        let used = state.used.entry(ask.bearer.clone().unwrap_or_default()).or_default();
        used.1 = used.1.saturating_sub(1);
    }
    reply.headers.extend(limits(ask, state, options, now));
    reply
}

/// What kind of call it is: its method and its path, without whose it is and what is numbered.
pub(super) fn kind(ask: &StandInRequest) -> String {
    let path = ask.segments();
    let rest = match *path {
        ["repos", _, _, ref rest @ ..] | ["orgs", _, ref rest @ ..] => rest,
        ref all => all,
    };
    let place = |part: &&str| if part.parse::<u64>().is_ok() { "{id}" } else { *part }.to_owned();
    let rest: Vec<String> = rest.iter().map(place).collect();
    format!("{} {}", ask.method, rest.join("/"))
}

fn hour(now: Timestamp) -> i64 {
    now.as_millis().div_euclid(3_600_000)
}

/// Counts a call, or refuses it if the hour's are used up.
fn budget(
    ask: &StandInRequest,
    state: &mut State,
    options: &Options,
    now: Timestamp,
) -> Result<(), StandInReply> {
    let used = state.used.entry(ask.bearer.clone().unwrap_or_default()).or_default();
    if used.0 != hour(now) {
        *used = (hour(now), 0);
    }
    if used.1 < options.calls_per_hour {
        used.1 += 1;
        return Ok(());
    }
    Err(over_budget(ask, state, options, now))
}

/// Counts a call's points, or refuses it if the minute's are used up.
fn points(ask: &StandInRequest, state: &mut State, now: Timestamp) -> Result<(), StandInReply> {
    let Some(most) = state.levers.points_per_minute else { return Ok(()) };
    let cost = if ask.method == Method::GET { 1 } else { 5 };
    let spent = state.points.entry(ask.bearer.clone().unwrap_or_default()).or_default();
    spent.retain(|(at, _)| now.since(*at) < MINUTE);
    if spent.iter().map(|(_, cost)| cost).sum::<u32>() + cost > most {
        let said = "You have exceeded a secondary rate limit. Please wait a few minutes before you \
                    try again.";
        let mut reply = StandInReply::refusal(403, said);
        reply.headers.push(("retry-after", MINUTE.as_secs().to_string()));
        return Err(reply);
    }
    spent.push_back((now, cost));
    Ok(())
}

/// The refusal of a primary rate limit.
pub(super) fn over_budget(
    ask: &StandInRequest,
    state: &State,
    options: &Options,
    now: Timestamp,
) -> StandInReply {
    let mut reply = StandInReply::refusal(403, "API rate limit exceeded for installation ID 1.");
    reply.headers = limits(ask, state, options, now);
    for (name, value) in &mut reply.headers {
        if *name == "x-ratelimit-remaining" {
            "0".clone_into(value);
        }
    }
    reply
}

fn limits(
    ask: &StandInRequest,
    state: &State,
    options: &Options,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let bearer = ask.bearer.clone().unwrap_or_default();
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

fn route(
    ask: &StandInRequest,
    state: &mut State,
    options: &Options,
    who: &Caller,
    now: Timestamp,
) -> StandInReply {
    let path = ask.segments();
    match *path {
        ["app", "installations", id, "access_tokens"] if ask.method == Method::POST => {
            become_installation(id, state, options, who, now)
        }
        ["app"] => app(options, who).map_or_else(StandInReply::not_found, |app| {
            StandInReply::json(
                200,
                json::integration(&app.id, &format!("http://{}", ask.host), now),
            )
        }),
        ["orgs", owner, "hooks"] if who.may_see(owner) && state.levers.organization_hooks => {
            StandInReply::json(200, json!([json::organization_hook(owner, &ask.host, now)]))
        }
        ["app", "installations"] if matches!(who, Caller::App(_)) => {
            installations(ask, options, who, now)
        }
        ["orgs", owner, "installation"] | ["repos", owner, _, "installation"] => {
            installation(ask, owner, (state, options), who, now)
        }
        ["orgs", owner, "actions", "runners", ref rest @ ..] if who.may_see(owner) => {
            runners(ask, rest, &Scope::Organization(owner.to_owned()), state, now)
        }
        ["orgs", owner, "actions", "runner-groups"] if who.may_see(owner) => {
            StandInReply::page(ask, "runner_groups", json::runner_groups(owner, &ask.host))
        }
        ["repos", owner, name, "actions", ref rest @ ..] if who.may_see(owner) => match rest {
            ["runners", rest @ ..] => {
                let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
                runners(ask, rest, &scope, state, now)
            }
            _ => runs(ask, rest, &format!("{owner}/{name}"), state, now),
        },
        ["app", "hook", "deliveries", ref rest @ ..] if matches!(who, Caller::App(_)) => {
            repository::deliveries(ask, rest, state, now)
        }
        ["repos", owner, name, ref rest @ ..] if who.may_see(owner) => {
            repository::answer(ask, rest, &format!("{owner}/{name}"), who, state, now)
        }
        _ => StandInReply::not_found(),
    }
}

fn app<'a>(options: &'a Options, who: &Caller) -> Option<&'a KnownApp> {
    match who {
        Caller::App(id) => options.app(id),
        Caller::Person | Caller::Installation(_) => None,
    }
}

fn become_installation(
    id: &str,
    state: &mut State,
    options: &Options,
    who: &Caller,
    now: Timestamp,
) -> StandInReply {
    let app = app(options, who);
    let id = id.parse::<u64>().ok();
    let account = match (state.levers.installed_anew, id) {
        (Some(anew), Some(id)) if anew == id => {
            app.and_then(|app| app.installations.values().next())
        }
        (Some(_), _) => None,
        (None, id) => id.and_then(|id| app.and_then(|app| app.installations.get(&id))),
    };
    let Some(account) = account else { return StandInReply::not_found() };
    let scope = Scope::Organization(account.clone());
    let (token, expires_at) = state.mint(GrantKind::Installation, scope, now);
    StandInReply::json(
        201,
        json!({
            "token": token, "expires_at": expires_at, "permissions": json::permissions(),
            "repository_selection": "all",
        }),
    )
}

fn installations(
    ask: &StandInRequest,
    options: &Options,
    who: &Caller,
    now: Timestamp,
) -> StandInReply {
    let base = format!("http://{}", ask.host);
    let all = app(options, who).into_iter().flat_map(|app| &app.installations);
    let all = all.map(|(id, account)| json::installation(*id, account, &base, now));
    StandInReply::array(ask, all.collect())
}

/// What GitHub says of an App to a caller without a credential: private ones are not there.
fn public_app(
    ask: &StandInRequest,
    slug: &str,
    state: &State,
    options: &Options,
    now: Timestamp,
) -> StandInReply {
    let known = options.app.iter().chain(&options.more_apps);
    let app = known.into_iter().find(|app| json::slug(&app.id) == slug);
    let base = format!("http://{}", ask.host);
    app.filter(|_| state.levers.public_apps).map_or_else(StandInReply::not_found, |app| {
        StandInReply::json(200, json::integration(&app.id, &base, now))
    })
}

fn installation(
    ask: &StandInRequest,
    owner: &str,
    (state, options): (&State, &Options),
    who: &Caller,
    now: Timestamp,
) -> StandInReply {
    let app = app(options, who);
    let found = app.and_then(|app| {
        app.installations.iter().find(|(_, account)| account.eq_ignore_ascii_case(owner))
    });
    let base = format!("http://{}", ask.host);
    found.map_or_else(StandInReply::not_found, |(id, account)| {
        let id = state.levers.installed_anew.unwrap_or(*id);
        StandInReply::json(200, json::installation(id, account, &base, now))
    })
}

fn runners(
    ask: &StandInRequest,
    rest: &[&str],
    scope: &Scope,
    state: &mut State,
    now: Timestamp,
) -> StandInReply {
    match (ask.method.as_str(), rest) {
        ("POST", ["registration-token"]) => token(GrantKind::Registration, scope, state, now),
        ("POST", ["remove-token"]) => token(GrantKind::Removal, scope, state, now),
        ("POST", ["generate-jitconfig"]) => jit(ask, scope, state, now),
        ("GET", ["downloads"]) => StandInReply::json(200, json::downloads()),
        ("GET", []) => {
            let wanted = ask.query.get("name");
            let rows = state
                .runners
                .values()
                .filter(|row| row.scope == *scope && wanted.is_none_or(|name| row.name == *name));
            StandInReply::page(ask, "runners", rows.map(|row| json::runner(row, now)).collect())
        }
        ("GET", [id]) => {
            let row = id.parse().ok().and_then(|id: u64| state.runners.get(&id));
            let row = row.filter(|row| row.scope == *scope);
            row.map_or_else(StandInReply::not_found, |row| {
                StandInReply::json(200, json::runner(row, now))
            })
        }
        ("DELETE", [id]) => {
            let Ok(id) = id.parse::<u64>() else { return StandInReply::not_found() };
            let name = state.runners.get(&id).map(|row| row.name.clone()).unwrap_or_default();
            match state.delete(scope, id) {
                Ok(()) => StandInReply::empty(204),
                Err(Refused::Busy) => StandInReply::refusal(
                    422,
                    &format!("Bad request - Runner \"{name}\" is still running a job\""),
                ),
                Err(_) => StandInReply::not_found(),
            }
        }
        _ => StandInReply::not_found(),
    }
}

fn token(kind: GrantKind, scope: &Scope, state: &mut State, now: Timestamp) -> StandInReply {
    let (token, expires_at) = state.mint(kind, scope.clone(), now);
    StandInReply::json(201, json!({"token": token, "expires_at": expires_at}))
}

#[derive(Deserialize)]
struct JitWish {
    name: String,
    runner_group_id: u64,
    labels: Vec<String>,
}

fn jit(ask: &StandInRequest, scope: &Scope, state: &mut State, now: Timestamp) -> StandInReply {
    let wish: JitWish = match ask.read() {
        Ok(wish) => wish,
        Err(refusal) => return refusal,
    };
    let named = (1..=NAME_CHARS_MAX).contains(&wish.name.chars().count());
    if !named || !(1..=LABELS_MAX).contains(&wish.labels.len()) {
        return StandInReply::refusal(422, "Invalid request.\n\nname or labels are out of bounds.");
    }
    let url = format!("http://{}/_stand-in", ask.host);
    let group = wish.runner_group_id;
    if !json::is_runner_group(scope, group) {
        return StandInReply::not_found();
    }
    if let Ok(row) = state.make_jit(scope.clone(), &wish.name, wish.labels, group, &url, now) {
        let body = json!({"runner": json::runner(row, now), "encoded_jit_config": row.jit});
        return StandInReply::json(201, body);
    }
    let name = wish.name;
    StandInReply::refusal(
        409,
        &format!("Already exists - A runner with the name {name} already exists."),
    )
}

fn runs(
    ask: &StandInRequest,
    rest: &[&str],
    repository: &str,
    state: &mut State,
    now: Timestamp,
) -> StandInReply {
    let base = format!("http://{}", ask.host);
    let jobs = |run: &str, attempt: Option<u32>| -> Option<Vec<Value>> {
        let jobs = state.jobs_of(repository, run.parse().ok()?, attempt);
        (!jobs.is_empty()).then(|| jobs.into_iter().map(|job| json::job(job, &base)).collect())
    };
    match (ask.method.as_str(), rest) {
        ("GET", ["jobs", id]) => {
            let row = id.parse().ok().and_then(|id: u64| state.jobs.get(&id));
            let row = row.filter(|row| row.order.repository == repository);
            row.map_or_else(StandInReply::not_found, |row| {
                StandInReply::json(200, json::job(row, &base))
            })
        }
        ("GET", ["runs", run, "jobs"]) => jobs(run, None)
            .map_or_else(StandInReply::not_found, |jobs| StandInReply::page(ask, "jobs", jobs)),
        ("GET", ["runs", run, "attempts", attempt, "jobs"]) => attempt
            .parse()
            .ok()
            .and_then(|attempt| jobs(run, Some(attempt)))
            .map_or_else(StandInReply::not_found, |jobs| StandInReply::page(ask, "jobs", jobs)),
        ("GET", ["runs", run]) => {
            let jobs = run.parse().map(|run| state.jobs_of(repository, run, None));
            let run = json::run(&jobs.unwrap_or_default(), state.place(repository));
            run.map_or_else(StandInReply::not_found, |run| StandInReply::json(200, run))
        }
        ("GET", ["runs"]) => {
            let wanted = ask.query.get("status").map(String::as_str);
            let runs = state.runs_of(repository).into_iter().filter_map(|run| {
                json::run(&state.jobs_of(repository, run, None), state.place(repository))
            });
            let fits = |run: &Value| {
                wanted.is_none_or(|it| run["status"] == it || run["conclusion"] == it)
            };
            StandInReply::page(ask, "workflow_runs", runs.filter(fits).collect())
        }
        ("POST", ["runs", run, "cancel"]) => cancel(run, repository, state, now),
        _ => StandInReply::not_found(),
    }
}

fn cancel(run: &str, repository: &str, state: &mut State, now: Timestamp) -> StandInReply {
    let jobs = run.parse().map(|run| state.jobs_of(repository, run, None)).unwrap_or_default();
    let jobs: Vec<u64> = jobs.into_iter().map(|job| job.id).collect();
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
