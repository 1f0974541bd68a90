//! The routes of GitHub's own interface, as far as we use it, and what it says of Apps.
//!
//! Not here: runners and runs (`actions`), checks, files and deliveries (`repository`), or the
//! stand-in's own routes (`control`).

use std::sync::Arc;

use axum::extract::{Extension, FromRequestParts, State as FromState};
use axum::http::request::Parts;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{Router, get, post};
use serde::Deserialize;
use serde_json::json;

use super::access::{Caller, KnownApp, Options};
use super::admission::{check_caller, check_client, github_levers};
use super::http::{FromPath, RequestHead, StandInReply};
use super::state::GrantKind;
use super::world::World;
use super::{actions, json, repository};
use crate::settings::Scope;

/// GitHub's interface under its levers, limits and credentials.
pub(super) fn router(world: &Arc<World>) -> Router<Arc<World>> {
    Router::new()
        .route("/app", get(app))
        .route("/app/installations", get(installations))
        .route("/app/installations/{id}/access_tokens", post(access_token))
        .nest("/app/hook/deliveries", repository::delivery_routes())
        .route("/orgs/{owner}/hooks", get(organization_hooks))
        .route("/orgs/{owner}/installation", get(installation))
        .route("/orgs/{owner}/actions/runner-groups", get(actions::runner_groups))
        .nest("/orgs/{owner}/actions/runners", actions::runner_routes())
        .route("/repos/{owner}/{name}/installation", get(installation))
        .nest("/repos/{owner}/{name}/actions/runners", actions::runner_routes())
        .nest("/repos/{owner}/{name}/actions", actions::run_routes())
        .nest("/repos/{owner}/{name}", repository::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(world), check_caller))
        // The one call that needs no credential.
        .route("/apps/{slug}", get(public_app).fallback(not_found))
        .layer(from_fn(check_client))
        .layer(from_fn_with_state(Arc::clone(world), github_levers))
}

pub(super) async fn not_found() -> StandInReply {
    StandInReply::not_found()
}

/// The account or repository of a path, which its caller may see. Others are not found.
#[derive(Debug)]
pub(super) struct VisibleScope(pub(super) Scope);

#[derive(Deserialize)]
struct ScopePath {
    owner: String,
    name: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for VisibleScope {
    type Rejection = StandInReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StandInReply> {
        let path = FromPath::<ScopePath>::from_request_parts(parts, state).await?;
        let FromPath(ScopePath { owner, name }) = path;
        let caller = parts.extensions.get::<Caller>();
        if !caller.is_some_and(|caller| caller.may_see(&owner)) {
            return Err(StandInReply::not_found());
        }
        Ok(Self(match name {
            Some(name) => Scope::Repository { owner, name },
            None => Scope::Organization(owner),
        }))
    }
}

/// The repository of a path, as `owner/name`, which its caller may see. Others are not found.
#[derive(Debug)]
pub(super) struct VisibleRepository(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for VisibleRepository {
    type Rejection = StandInReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StandInReply> {
        match VisibleScope::from_request_parts(parts, state).await? {
            VisibleScope(Scope::Repository { owner, name }) => Ok(Self(format!("{owner}/{name}"))),
            VisibleScope(Scope::Organization(_)) => Err(StandInReply::not_found()),
        }
    }
}

/// The App that calls. For other callers there is nothing there.
#[derive(Debug)]
pub(super) struct CallingApp(KnownApp);

impl FromRequestParts<Arc<World>> for CallingApp {
    type Rejection = StandInReply;

    async fn from_request_parts(
        parts: &mut Parts,
        world: &Arc<World>,
    ) -> Result<Self, StandInReply> {
        let app = parts.extensions.get().and_then(|caller| app_of(caller, &world.options));
        app.cloned().map(Self).ok_or_else(StandInReply::not_found)
    }
}

fn app_of<'a>(caller: &Caller, options: &'a Options) -> Option<&'a KnownApp> {
    match caller {
        Caller::App(id) => options.app(id),
        Caller::Person | Caller::Installation(_) => None,
    }
}

async fn app(
    FromState(world): FromState<Arc<World>>,
    CallingApp(app): CallingApp,
    head: RequestHead,
) -> StandInReply {
    StandInReply::json(200, json::integration(&app.id, &head.base(), world.now()))
}

async fn organization_hooks(
    FromState(world): FromState<Arc<World>>,
    VisibleScope(scope): VisibleScope,
    head: RequestHead,
) -> StandInReply {
    let Scope::Organization(owner) = scope else { return StandInReply::not_found() };
    if !world.look(|state, _| state.levers.organization_hooks) {
        return StandInReply::not_found();
    }
    let hook = json::organization_hook(&owner, &head.host, world.now());
    StandInReply::json(200, json!([hook]))
}

async fn access_token(
    FromState(world): FromState<Arc<World>>,
    CallingApp(app): CallingApp,
    FromPath(id): FromPath<u64>,
) -> StandInReply {
    world.act(|state, now| {
        let account = match state.levers.installed_anew {
            Some(anew) if anew == id => app.installations.values().next(),
            Some(_) => None,
            None => app.installations.get(&id),
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
    })
}

async fn installations(
    FromState(world): FromState<Arc<World>>,
    CallingApp(app): CallingApp,
    head: RequestHead,
) -> StandInReply {
    let (base, now) = (head.base(), world.now());
    let all = app.installations.iter();
    let all = all.map(|(id, account)| json::installation(*id, account, &base, now));
    StandInReply::array(&head, all.collect())
}

/// What GitHub says of an App to a caller without a credential: private ones are not there.
async fn public_app(
    FromState(world): FromState<Arc<World>>,
    FromPath(slug): FromPath<String>,
    head: RequestHead,
) -> StandInReply {
    let mut known = world.options.app.iter().chain(&world.options.more_apps);
    let app = known.find(|app| json::slug(&app.id) == slug);
    let app = app.filter(|_| world.look(|state, _| state.levers.public_apps));
    StandInReply::found(app.map(|app| json::integration(&app.id, &head.base(), world.now())))
}

/// Where an account's path leads to; the App need not be able to see what belongs to it.
async fn installation(
    FromState(world): FromState<Arc<World>>,
    Extension(caller): Extension<Caller>,
    FromPath(ScopePath { owner, .. }): FromPath<ScopePath>,
    head: RequestHead,
) -> StandInReply {
    let found = app_of(&caller, &world.options).and_then(|app| {
        app.installations.iter().find(|(_, account)| account.eq_ignore_ascii_case(&owner))
    });
    let anew = world.look(|state, _| state.levers.installed_anew);
    StandInReply::found(found.map(|(id, account)| {
        json::installation(anew.unwrap_or(*id), account, &head.base(), world.now())
    }))
}
