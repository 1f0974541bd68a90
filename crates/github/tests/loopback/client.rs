//! Tests of the client beyond the port: tokens and their expiry, pages, names, ids, runs.
//!
//! Not here: outages and refusals (`levers`).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::forge_rates::CallPurpose;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Fault, Forge as _, RunnerSpec};
use bullpen_github::stand_in::protocol::{Conclusion, Register};
use bullpen_github::{App, BadSettings, GitHub, Installed, Login, Settings, Status};
use bullpen_sim::clock::ManualClock;
use futures_util::future::join_all;

use crate::world::{APP_ID, World, app, key, order, pat, spec};

const MINUTE: Duration = Duration::from_secs(60);

fn denied(fault: &Fault, hint: &str) {
    assert!(matches!(fault, Fault::Denied(text) if text.contains(hint)), "{fault}");
}

#[tokio::test]
async fn the_installations_are_current_and_of_the_apps_that_answer() {
    let world = World::new().await;
    let settings = world.settings("acme", app());
    let unknown_app = App { id: "Iv1.other".to_owned(), key: key(), installation: None };
    let more = Settings { more_apps: vec![unknown_app.clone()], ..settings };
    let github = GitHub::new(&more, Arc::clone(&world.clock)).unwrap();
    let known = |id: u64, is_complete| Ok(Some(Installed { ids: [id].into(), is_complete }));
    assert_eq!(github.installations().await, known(7, false), "GitHub refuses one App");
    let alone = world.client("acme", app());
    assert_eq!(alone.installations().await, known(7, true));
    alone.list().await.unwrap();
    world.stand_in.pull(|levers| levers.installed_anew = Some(9));
    assert_eq!(alone.installations().await, known(9, true));
    alone.list().await.unwrap();
    assert_eq!(world.client("acme", pat()).installations().await, Ok(None));
    let first = world.client("acme", Login::App(unknown_app));
    assert!(first.installations().await.is_err(), "the first App receives the webhooks");
}

/// Without a credential, GitHub shows public Apps and hides private ones.
#[tokio::test]
async fn each_app_is_known_as_public_or_private_with_all_its_accounts() {
    let world = World::with(|options| {
        let app = options.app.as_mut().expect("the options have an App");
        let many = (100..250).map(|id| (id, format!("account-{id}")));
        app.installations.extend(many);
    })
    .await;
    let github = world.client("acme", app());
    let standing = github.apps().await.unwrap();
    let [one] = &standing[..] else { panic!("{standing:?}") };
    assert_eq!((one.slug.as_str(), one.is_public), ("iv1-stand-in", Some(false)));
    assert_eq!(one.accounts.len(), 151, "the second page's accounts too");
    world.stand_in.pull(|levers| levers.public_apps = true);
    assert_eq!(github.apps().await.unwrap()[0].is_public, Some(true));
    assert_eq!(world.client("acme", pat()).apps().await, Ok(vec![]));
}

/// The organisation may have a webhook of its own, wider than the App's one repository.
#[tokio::test]
async fn an_organisations_webhook_is_named_beside_an_app() {
    let world = World::new().await;
    let github = world.client("acme/app", app());
    let of_app = "the App is installed on all repositories of acme".to_owned();
    assert_eq!(github.wider_hooks().await, Ok(vec![of_app.clone()]));
    world.stand_in.pull(|levers| levers.organization_hooks = true);
    let hook = "webhook 1 of the organisation acme".to_owned();
    assert_eq!(github.wider_hooks().await, Ok(vec![of_app, hook]));
}

#[tokio::test]
async fn an_installation_token_is_requested_once_and_replaced_early() {
    let world = World::new().await;
    let github = world.client("acme", app());
    github.list().await.unwrap();
    assert_eq!(world.stand_in.calls(), 3, "the installation, its token, the listing");
    world.clock.advance(54 * MINUTE);
    github.list().await.unwrap();
    assert_eq!(world.stand_in.calls(), 4, "the token is still valid");
    world.clock.advance(MINUTE);
    github.list().await.unwrap();
    assert_eq!(world.stand_in.calls(), 6, "a new token, for the remembered installation");
}

#[tokio::test]
async fn many_callers_share_one_token() {
    let world = World::new().await;
    let github = world.client("acme", app());
    for listed in join_all((0..8).map(|_| github.list())).await {
        listed.unwrap();
    }
    assert_eq!(world.stand_in.calls(), 2 + 8);
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once() {
    let world = World::new().await;
    let github = world.client("acme", app());
    github.list().await.unwrap();
    world.stand_in.revoke_tokens();
    github.list().await.unwrap();
    assert_eq!(world.stand_in.calls(), 3 + 3, "refused, a new token, the listing");
}

#[tokio::test]
async fn the_fault_of_an_unknown_or_uninstalled_app_advises_what_to_check() {
    let world = World::new().await;
    let unknown_app =
        Login::App(App { id: "Iv1.other".to_owned(), key: key(), installation: None });
    denied(&world.client("acme", unknown_app).list().await.unwrap_err(), "the App's id");
    denied(&world.client("other", app()).list().await.unwrap_err(), "App is installed");
    let wrong = Login::App(App { id: APP_ID.to_owned(), key: key(), installation: Some(8) });
    denied(&world.client("acme", wrong).list().await.unwrap_err(), "App is installed");
}

#[tokio::test]
async fn a_jwt_from_a_wrong_clock_is_refused() {
    let world = World::new().await;
    let off = ManualClock::new();
    off.advance(20 * MINUTE);
    let settings = world.settings("acme", app());
    let github = GitHub::new(&settings, off).unwrap();
    denied(&github.list().await.unwrap_err(), "clock");
}

#[tokio::test]
async fn a_token_is_accepted_or_refused() {
    let world = World::with(|options| options.token = Secret::new("ghp_good")).await;
    let login = |text| Login::Token(Secret::new(text));
    assert_eq!(world.client("acme", login("ghp_good")).list().await.unwrap(), []);
    let fault = world.client("acme", login("ghp_bad")).list().await.unwrap_err();
    denied(&fault, "check the token");
    assert!(!fault.to_string().contains("ghp_bad"), "{fault}");
}

#[tokio::test]
async fn a_registration_token_is_kept_for_half_its_life() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let first = github.registration_token().await.unwrap();
    world.clock.advance(29 * MINUTE);
    assert_eq!(github.registration_token().await.unwrap(), first);
    world.clock.advance(MINUTE);
    assert_ne!(github.registration_token().await.unwrap(), first);
    assert_ne!(github.removal_token().await.unwrap(), github.removal_token().await.unwrap());
}

#[tokio::test]
async fn an_idle_runner_gives_its_name_to_a_new_jit_runner_and_a_busy_one_does_not() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let first = github.jit(&spec("bp-1", true)).await.unwrap();
    let second = github.jit(&spec("bp-1", true)).await.unwrap();
    assert_ne!(first, second);
    let request = |jit| Register { jit: Some(jit), ..Register::default() };
    assert_eq!(world.register(&request(first.config)).await.unwrap_err(), 401);
    world.register(&request(second.config)).await.unwrap();
    world.job(&["self-hosted"]);
    let fault = github.jit(&spec("bp-1", true)).await.unwrap_err();
    assert!(matches!(&fault, Fault::Unclassified(text) if text.contains("runs a job")), "{fault}");
    assert_eq!(world.stand_in.runners().len(), 1);
}

#[tokio::test]
async fn a_runner_joins_only_the_named_group() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let in_group =
        |name: &str, group: &str| RunnerSpec { group: Some(group.into()), ..spec(name, true) };
    github.jit(&in_group("bp-1", "Builders")).await.unwrap();
    github.jit(&spec("bp-2", true)).await.unwrap();
    let groups: Vec<u64> = world.stand_in.runners().iter().map(|runner| runner.group).collect();
    assert_eq!(groups, [2, 1]);
    let before = world.stand_in.calls();
    github.jit(&in_group("bp-3", "builders")).await.unwrap();
    assert_eq!(world.stand_in.calls(), before + 1, "the group's id is remembered");
    denied(&github.jit(&in_group("bp-4", "nope")).await.unwrap_err(), "no runner group nope");
    let of_repository = world.client("acme/app", pat());
    denied(&of_repository.jit(&in_group("bp-5", "builders")).await.unwrap_err(), "organisation");
    assert_eq!(world.stand_in.runners().len(), 3);
}

#[tokio::test]
async fn a_runner_without_the_prefix_is_neither_changed_nor_listed() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let theirs = world.runner("acme", "theirs", &["x"]).await;
    let ours = world.runner("acme", "bp-1", &["x"]).await;
    let before = world.stand_in.calls();
    denied(&github.delete_named(&"theirs".into()).await.unwrap_err(), "prefix");
    denied(&github.delete_known(&"theirs".into(), theirs.runner_id).await.unwrap_err(), "prefix");
    denied(&github.jit(&spec("theirs-too", true)).await.unwrap_err(), "prefix");
    assert_eq!(github.delete(&"theirs".into()).await, Deletion::Unavailable);
    assert_eq!(world.stand_in.calls(), before, "the client called GitHub");
    let listed: Vec<u64> = github.list().await.unwrap().iter().map(|row| row.id).collect();
    assert_eq!(listed, [ours.runner_id]);
}

#[tokio::test]
async fn a_runner_is_deleted_by_its_old_or_its_new_id() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let name = "bp-1".into();
    let before = world.stand_in.calls();
    let deleted = github.delete_known(&name, runner.runner_id).await.unwrap();
    assert_eq!((deleted, world.stand_in.calls()), (Deletion::Deleted, before + 1));
    assert_eq!(github.delete_known(&name, runner.runner_id).await.unwrap(), Deletion::NotFound);
    let back = world.runner("acme", "bp-1", &["x"]).await;
    assert_ne!(back.runner_id, runner.runner_id);
    assert_eq!(github.delete_known(&name, runner.runner_id).await.unwrap(), Deletion::Deleted);
    assert_eq!(world.stand_in.runners(), []);
}

#[tokio::test]
async fn a_name_is_not_a_pattern() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    world.runner("acme", "bp-1", &["x"]).await;
    for near in ["bp-", "bp-11", "bp-1&name=bp-1", "bp-1/../bp-1"] {
        assert_eq!(github.delete_named(&near.into()).await.unwrap(), Deletion::NotFound, "{near}");
    }
}

#[tokio::test]
async fn runs_and_jobs_are_read_on_all_pages() {
    let world = World::new().await;
    let github = world.client("acme/app", pat());
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let first = world.job(&["x"]);
    for attempt in [1, 2] {
        for _ in 0..250 {
            let (run_id, run_attempt) = (Some(first.run_id), Some(attempt));
            world.stand_in.submit(bullpen_github::stand_in::protocol::JobOrder {
                run_id,
                run_attempt,
                ..order(&["unmatched"])
            });
        }
    }
    let repository = "acme/app".into();
    let ids = |jobs: &[bullpen_github::WorkflowJob]| {
        jobs.iter().map(|job| job.id).collect::<std::collections::BTreeSet<_>>().len()
    };
    let latest = github.jobs(&repository, first.run_id, None).await.unwrap();
    assert_eq!((latest.len(), ids(&latest)), (250, 250));
    let earlier = github.jobs(&repository, first.run_id, Some(1)).await.unwrap();
    assert_eq!((earlier.len(), ids(&earlier)), (251, 251));

    let job = github.job(&repository, first.id).await.unwrap();
    assert_eq!((job.status, job.runner_name), (Status::Queued, None));
    world.started(&runner, first.id).await;
    let job = github.job(&repository, first.id).await.unwrap();
    assert_eq!((job.status, job.runner_name.as_deref()), (Status::InProgress, Some("bp-1")));
    world.completed(&runner, first.id, "failure").await;
    let job = github.job(&repository, first.id).await.unwrap();
    assert_eq!((job.status, job.conclusion.as_deref()), (Status::Completed, Some("failure")));
    assert_eq!(world.stand_in.over(first.id).await.conclusion, Some(Conclusion::Failure));
    let run = github.run(&repository, first.run_id, CallPurpose::Job).await.unwrap();
    assert_eq!((run.run_attempt, run.status), (2, Status::Queued));

    assert_eq!(github.run(&repository, 999_999, CallPurpose::Job).await, Err(Fault::NotFound));
    assert_eq!(github.job(&"acme/other".into(), first.id).await, Err(Fault::NotFound));
    assert_eq!(github.jobs(&repository, 999_999, None).await, Err(Fault::NotFound));
}

#[tokio::test]
async fn an_enterprise_server_is_reached_below_its_path() {
    let world = World::new().await;
    let base_url = format!("{}/api/v3/", world.stand_in.url());
    let settings = Settings { base_url, ..world.settings("acme", app()) };
    let github = GitHub::new(&settings, Arc::clone(&world.clock)).unwrap();
    for number in 0..101 {
        world.runner("acme", &format!("bp-{number}"), &["x"]).await;
    }
    assert_eq!(github.list().await.unwrap().len(), 101);
}

#[tokio::test]
async fn invalid_settings_are_refused_and_nothing_shows_a_secret() {
    let world = World::new().await;
    let make = |settings: &Settings| GitHub::new(settings, Arc::clone(&world.clock));
    let good = world.settings("acme", pat());
    let empty = Settings { prefix: String::new(), ..good.clone() };
    assert!(matches!(make(&empty), Err(BadSettings::NoPrefix)));
    for token in ["", "two words", "line\n"] {
        let login = Login::Token(Secret::new(token));
        assert!(matches!(make(&Settings { login, ..good.clone() }), Err(BadSettings::Token)));
    }
    assert!(!format!("{:?} {good:?}", make(&good).unwrap()).contains("ghp_"));
    let github = make(&good).unwrap();
    let shown = format!(
        "{:?} {:?}",
        github.registration_token().await.unwrap(),
        github.jit(&spec("bp-1", true)).await.unwrap()
    );
    assert!(!shown.contains("registration-") && shown.contains("Secret(***)"), "{shown}");
}
