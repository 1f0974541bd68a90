//! GitHub's shapes: the fields of its schemas, filled with what the stand-in knows.
//!
//! Some addresses lead nowhere; the schemas require them.
//!
//! Not here: routes (`rest`).

use bullpen_core::time::Timestamp;
use serde_json::{Value, json};

use super::hooks::WebhookAttempt;
use super::protocol::{Conclusion, NoticeView};
use super::state::{Job, Runner};
use crate::settings::Scope;

/// Labels that a runner program sets by itself; GitHub calls them read-only.
const DEFAULT_LABELS: &[&str] = &["self-hosted", "linux", "x64", "arm64"];
/// Newer than any that there is.
const NEWEST_RUNNER: &str = "2.999.0";
const SHA: &str = "0000000000000000000000000000000000000000";

/// The schema `runner`.
pub(super) fn runner(row: &Runner, now: Timestamp) -> Value {
    let labels: Vec<Value> = row
        .labels
        .iter()
        .zip(1..)
        .map(|(name, id): (&String, u64)| {
            let is_default = DEFAULT_LABELS.contains(&name.to_lowercase().as_str());
            let kind = if is_default { "read-only" } else { "custom" };
            json!({"id": id, "name": name, "type": kind})
        })
        .collect();
    json!({
        "id": row.id,
        "runner_group_id": row.group,
        "name": row.name,
        "os": "linux",
        "status": if row.is_online(now) { "online" } else { "offline" },
        "busy": row.job.is_some(),
        "ephemeral": row.ephemeral,
        "labels": labels,
    })
}

/// The schema `job`.
pub(super) fn job(row: &Job, base: &str) -> Value {
    let api = format!("{base}/repos/{}", row.order.repository);
    let (runner_id, runner_name) = match (&row.runner, row.started) {
        (Some((id, name)), Some(_)) => (Some(*id), Some(name.as_str())),
        _ => (None, None),
    };
    json!({
        "id": row.id,
        "run_id": row.run,
        "run_url": format!("{api}/actions/runs/{}", row.run),
        "run_attempt": row.attempt,
        "node_id": format!("job-{}", row.id),
        "head_sha": SHA,
        "url": format!("{api}/actions/jobs/{}", row.id),
        "html_url": format!("{api}/actions/runs/{}/job/{}", row.run, row.id),
        "status": row.status(),
        "conclusion": row.conclusion().map(Conclusion::as_str),
        "created_at": row.created,
        // GitHub sets it even while the job is queued.
        "started_at": row.started.unwrap_or(row.created),
        "completed_at": row.completed,
        "name": row.name,
        "steps": [],
        "check_run_url": format!("{api}/check-runs/{}", row.id),
        "labels": row.order.labels,
        "runner_id": runner_id,
        "runner_name": runner_name,
        "runner_group_id": runner_id.map(|_| 1),
        "runner_group_name": runner_id.map(|_| "Default"),
        "workflow_name": "stand-in",
        "head_branch": "main",
    })
}

/// The runner groups of every organisation here; ids count from 1.
const RUNNER_GROUPS: &[&str] = &["Default", "builders"];

/// Whether a runner of this scope may join the group of this id: a repository has the first alone.
pub(super) fn is_runner_group(scope: &Scope, id: u64) -> bool {
    match scope {
        Scope::Repository { .. } => id == 1,
        Scope::Organization(_) => (1..=RUNNER_GROUPS.len() as u64).contains(&id),
    }
}

/// The schema `runner-groups-org`, of each group.
pub(super) fn runner_groups(organization: &str, host: &str) -> Vec<Value> {
    let group = |(id, name): (u64, &&str)| {
        let url = format!("http://{host}/orgs/{organization}/actions/runner-groups/{id}/runners");
        json!({
            "id": id, "name": name, "visibility": "all", "default": id == 1, "runners_url": url,
            "inherited": false, "allows_public_repositories": false,
            "restricted_to_workflows": false, "selected_workflows": [],
            "workflow_restrictions_read_only": false,
        })
    };
    (1..).zip(RUNNER_GROUPS).map(group).collect()
}

/// The schema `workflow-run`, of the jobs of one attempt; at least one.
pub(super) fn run(jobs: &[&Job], place: RepositoryUrls<'_>) -> Option<Value> {
    let RepositoryUrls { repository, base, .. } = place;
    let first = jobs.first()?;
    let (status, conclusion) = standing(jobs);
    let api = format!("{base}/repos/{repository}");
    let url = format!("{api}/actions/runs/{}", first.run);
    let updated = jobs.iter().filter_map(|job| job.completed.or(job.started)).max();
    let head = first.order.fork.as_deref().unwrap_or(repository);
    let head_repository = minimal_repository(RepositoryUrls { repository: head, ..place });
    let (owner, _) = repository.split_once('/').unwrap_or_default();
    let actor = account(first.order.actor.as_deref().unwrap_or(owner), base);
    let repository = minimal_repository(place);
    Some(json!({
        "id": first.run,
        "name": "stand-in",
        "node_id": format!("run-{}", first.run),
        "check_suite_id": first.run,
        "check_suite_node_id": format!("suite-{}", first.run),
        "head_branch": "main",
        "head_sha": SHA,
        "path": ".github/workflows/stand-in.yml",
        "run_number": first.run,
        "run_attempt": first.attempt,
        "event": first.order.event.as_deref().unwrap_or("push"),
        "display_title": "stand-in",
        "status": status,
        "conclusion": conclusion.map(Conclusion::as_str),
        "workflow_id": 1,
        "url": url,
        "html_url": url,
        "pull_requests": [],
        "created_at": first.created,
        "updated_at": updated.unwrap_or(first.created),
        "run_started_at": first.created,
        "jobs_url": format!("{url}/jobs"),
        "logs_url": format!("{url}/logs"),
        "check_suite_url": format!("{api}/check-suites/{}", first.run),
        "artifacts_url": format!("{url}/artifacts"),
        "cancel_url": format!("{url}/cancel"),
        "rerun_url": format!("{url}/rerun"),
        "previous_attempt_url": null,
        "workflow_url": format!("{api}/actions/workflows/1"),
        "head_commit": {
            "id": "0a1b2c", "tree_id": "0a1b2c", "message": "stand-in", "timestamp": first.created,
            "author": {"name": "stand-in", "email": "stand-in@runs.localhost"},
            "committer": {"name": "stand-in", "email": "stand-in@runs.localhost"},
        },
        "actor": actor,
        "triggering_actor": actor,
        "repository": repository,
        "head_repository": head_repository,
    }))
}

/// What the schema `minimal-repository` calls `<this>_url`.
const REPOSITORY_URLS: &str = "archive assignees blobs branches collaborators comments commits \
    compare contents contributors deployments downloads events forks git_commits git_refs git_tags \
    hooks issue_comment issue_events issues keys labels languages merges milestones notifications \
    pulls releases stargazers statuses subscribers subscription tags teams trees";
/// What the schema `simple-user` calls `<this>_url`.
const ACCOUNT_URLS: &str = "avatar events followers following gists html organizations \
    received_events repos starred subscriptions";

/// A repository, and where it is.
#[derive(Clone, Copy)]
pub(super) struct RepositoryUrls<'a> {
    pub(super) repository: &'a str,
    pub(super) base: &'a str,
    pub(super) is_public: bool,
    /// Of the App on the repository's owner.
    pub(super) installation: u64,
}

/// The schema `minimal-repository`.
fn minimal_repository(
    RepositoryUrls { repository, base, is_public, .. }: RepositoryUrls<'_>,
) -> Value {
    let (owner, name) = repository.split_once('/').unwrap_or_default();
    let api = format!("{base}/repos/{repository}");
    let fields = json!({
        "id": 1, "node_id": "repository-1", "name": name, "full_name": repository,
        "private": !is_public, "fork": false, "description": null, "url": api, "html_url": api,
        "owner": account(owner, base),
    });
    with_urls(fields, REPOSITORY_URLS, &api)
}

/// The schema `simple-user`.
pub(super) fn account(login: &str, base: &str) -> Value {
    let api = format!("{base}/users/{login}");
    let fields = json!({
        "login": login, "id": 1, "node_id": "account-1", "type": "Organization",
        "site_admin": false, "gravatar_id": "", "url": api,
    });
    with_urls(fields, ACCOUNT_URLS, &api)
}

fn with_urls(mut fields: Value, names: &str, api: &str) -> Value {
    for name in names.split_whitespace() {
        fields[format!("{name}_url")] = format!("{api}/{name}").into();
    }
    fields
}

/// The schema `installation`.
pub(super) fn installation(id: u64, login: &str, base: &str, now: Timestamp) -> Value {
    json!({
        "id": id,
        "account": account(login, base),
        "app_id": 1,
        "app_slug": "stand-in",
        "target_id": 1,
        "target_type": "Organization",
        "repository_selection": "all",
        "access_tokens_url": format!("{base}/app/installations/{id}/access_tokens"),
        "repositories_url": format!("{base}/installation/repositories"),
        "html_url": format!("{base}/organizations/{login}/settings/installations/{id}"),
        "events": ["workflow_job"],
        "permissions": permissions(),
        "single_file_name": null,
        "created_at": now,
        "updated_at": now,
        "suspended_by": null,
        "suspended_at": null,
    })
}

/// What an App is called in addresses.
pub(super) fn slug(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    id.chars().map(plain).collect()
}

/// The schema `integration`.
pub(super) fn integration(id: &str, base: &str, now: Timestamp) -> Value {
    let slug = slug(id);
    json!({
        "id": 1, "slug": slug, "node_id": "app-1", "client_id": id, "name": slug,
        "owner": account("stand-in", base), "description": null, "external_url": base,
        "html_url": format!("{base}/apps/{slug}"), "created_at": now, "updated_at": now,
        "permissions": permissions(), "events": ["workflow_job"],
    })
}

/// The schema `org-hook`.
pub(super) fn organization_hook(organization: &str, host: &str, now: Timestamp) -> Value {
    let url = format!("http://{host}/orgs/{organization}/hooks/1");
    json!({
        "id": 1, "url": url, "ping_url": format!("{url}/pings"), "name": "web", "events": ["*"],
        "active": true, "config": {"url": "https://hooks.example"}, "updated_at": now,
        "created_at": now, "type": "Organization",
    })
}

/// An array of the schema `runner-application`.
pub(super) fn downloads() -> Value {
    let one = |architecture: &str| {
        let filename = format!("actions-runner-linux-{architecture}-{NEWEST_RUNNER}.tar.gz");
        json!({
            "os": "linux",
            "architecture": architecture,
            "download_url": format!("https://example.com/{filename}"),
            "filename": filename,
        })
    };
    json!([one("x64"), one("arm64")])
}

/// The schema `app-permissions`, as far as we need any.
pub(super) fn permissions() -> Value {
    json!({
        "actions": "write", "administration": "write", "metadata": "read", "checks": "write",
        "contents": "read",
        "organization_self_hosted_runners": "write",
    })
}

/// A run stands where its jobs stand.
fn standing(jobs: &[&Job]) -> (&'static str, Option<Conclusion>) {
    let conclusions: Vec<Conclusion> = jobs.iter().filter_map(|job| job.conclusion()).collect();
    if conclusions.len() == jobs.len() {
        let worst = [Conclusion::Failure, Conclusion::Cancelled];
        let worst = worst.into_iter().find(|one| conclusions.contains(one));
        return ("completed", Some(worst.unwrap_or(Conclusion::Success)));
    }
    let untouched = jobs.iter().all(|job| ["queued", "waiting"].contains(&job.status()));
    (if untouched { "queued" } else { "in_progress" }, None)
}

/// A `workflow_job` webhook.
pub(super) fn workflow_job(action: &str, row: &Job, place: RepositoryUrls<'_>) -> Value {
    framed(action, "workflow_job", &job(row, place.base), place)
}

/// A `workflow_run` webhook about the run of this job, as it was when the run was made.
pub(super) fn workflow_run(row: &Job, place: RepositoryUrls<'_>) -> Value {
    let mut run = run(&[row], place).unwrap_or_default();
    (run["status"], run["conclusion"]) = ("queued".into(), Value::Null);
    let mut body = framed("requested", "workflow_run", &run, place);
    body["workflow"] = json!({
        "id": 1, "node_id": "workflow-1", "name": "stand-in", "state": "active",
        "path": ".github/workflows/stand-in.yml", "badge_url": place.base,
        "created_at": row.created, "updated_at": row.created,
        "url": place.base, "html_url": place.base,
    });
    body
}

fn framed(action: &str, name: &str, what: &Value, place: RepositoryUrls<'_>) -> Value {
    let RepositoryUrls { repository, base, .. } = place;
    let (owner, _) = repository.split_once('/').unwrap_or_default();
    let organization = with_urls(
        json!({
            "login": owner, "id": 1, "node_id": "organization-1", "description": null,
            "url": format!("{base}/orgs/{owner}"),
        }),
        "repos events hooks issues members public_members avatar",
        &format!("{base}/orgs/{owner}"),
    );
    json!({
        "action": action,
        name: what,
        "repository": full_repository(place),
        "organization": organization,
        "installation": {"id": place.installation, "node_id": "installation-1"},
        "sender": account(owner, base),
    })
}

/// The schema `repository` of webhooks.
fn full_repository(place: RepositoryUrls<'_>) -> Value {
    let mut fields = minimal_repository(place);
    let api = fields["url"].clone();
    for name in ["git_url", "ssh_url", "clone_url", "svn_url"] {
        fields[name] = api.clone();
    }
    for name in ["size", "stargazers_count", "watchers_count", "forks_count", "open_issues_count"] {
        fields[name] = 0.into();
    }
    for name in ["forks", "open_issues", "watchers"] {
        fields[name] = 0.into();
    }
    for name in ["has_issues", "has_projects", "has_downloads", "has_wiki", "has_pages"] {
        fields[name] = false.into();
    }
    for name in ["archived", "is_template", "web_commit_signoff_required"] {
        fields[name] = false.into();
    }
    for name in ["homepage", "language", "mirror_url", "license"] {
        fields[name] = Value::Null;
    }
    for name in ["created_at", "updated_at", "pushed_at"] {
        fields[name] = "2026-01-01T00:00:00Z".into();
    }
    fields["default_branch"] = "main".into();
    fields["visibility"] = if place.is_public { "public" } else { "private" }.into();
    fields["topics"] = json!([]);
    fields["custom_properties"] = json!({});
    fields
}

/// The schema `check-run`.
pub(super) fn check(notice: &NoticeView, base: &str) -> Value {
    let url = format!("{base}/repos/{}/check-runs/{}", notice.repository, notice.id);
    json!({
        "id": notice.id,
        "node_id": format!("check-{}", notice.id),
        "head_sha": notice.commit,
        "name": notice.name,
        "external_id": notice.external_id,
        "url": url,
        "html_url": url,
        "details_url": url,
        "status": "completed",
        "conclusion": notice.outcome,
        "started_at": notice.at,
        "completed_at": notice.at,
        "output": {
            "title": notice.title, "summary": notice.text, "text": null,
            "annotations_count": 0, "annotations_url": format!("{url}/annotations"),
        },
        "check_suite": {"id": 1},
        "app": null,
        "pull_requests": [],
    })
}

/// The schema `status`.
pub(super) fn status(notice: &NoticeView, base: &str) -> Value {
    json!({
        "id": notice.id,
        "node_id": format!("status-{}", notice.id),
        "url": format!("{base}/repos/{}/statuses/{}", notice.repository, notice.commit),
        "avatar_url": null,
        "state": notice.outcome,
        "description": notice.text,
        "target_url": null,
        "context": notice.name,
        "created_at": notice.at,
        "updated_at": notice.at,
        "creator": null,
    })
}

/// The schema `content-file`.
pub(super) fn file(repository: &str, path: &str, size: usize, packed: &str, base: &str) -> Value {
    let url = format!("{base}/repos/{repository}/contents/{path}");
    json!({
        "type": "file", "encoding": "base64", "size": size, "content": packed, "path": path,
        "name": path.rsplit('/').next(), "sha": SHA, "url": url, "git_url": url, "html_url": url,
        "download_url": url, "_links": {"git": url, "html": url, "self": url},
    })
}

/// The schema `hook-delivery-item`.
pub(super) fn delivery(parcel: &WebhookAttempt) -> Value {
    let (at, code) = parcel.tried.unwrap_or((Timestamp::EPOCH, 0));
    json!({
        "id": parcel.id,
        "guid": parcel.guid,
        "delivered_at": at,
        "redelivery": parcel.redelivery,
        "duration": 0.03,
        "status": if (200..300).contains(&code) { "OK" } else { "Invalid HTTP Response" },
        "status_code": code,
        "event": parcel.event,
        "action": parcel.action,
        "installation_id": 1,
        "repository_id": 1,
        "throttled_at": null,
    })
}
