//! Tests of the port `JobForge`: files, notices, cancelling, provenance, and the budget.
//!
//! Not here: webhooks (`webhooks`).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::Architecture;
use bullpen_core::ids::{JobId, RunAttempt};
use bullpen_core::job::{Origin, Reason, Visibility};
use bullpen_core::ports::{Fault, FileRead, Forge as _, JobForge, Notice};
use bullpen_github::stand_in::KnownApp;
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};
use bullpen_github::{App, BadSettings, GitHub, Settings};
use futures_util::future::join;

use crate::world::{World, app, key, order, pat, spec};

fn notice(job: &str) -> Notice {
    Notice {
        job: JobId::new(job),
        name: "build".to_owned(),
        repository: "acme/app".into(),
        commit: "0a1b2c".to_owned(),
        reason: Reason::UnknownPool { pool: "c1".into(), suggestions: vec!["ci".to_owned()] },
    }
}

#[tokio::test]
async fn a_file_is_read_and_an_unchanged_one_is_not_sent_again() {
    let world = World::new().await;
    let github = world.client("acme", app());
    let (repository, path) = ("acme/.github-private".into(), ".github/runs-on.yml");
    assert_eq!(github.file(&repository, path, None).await, Ok(FileRead::Absent));
    world.stand_in.put_file(repository.as_str(), path, "pools: {}\n");
    let Ok(FileRead::Read { text, tag }) = github.file(&repository, path, None).await else {
        panic!("the file exists");
    };
    assert_eq!(text, "pools: {}\n");
    let tag = tag.as_deref();
    assert_eq!(github.file(&repository, path, tag).await, Ok(FileRead::Unchanged));
    world.stand_in.put_file(repository.as_str(), path, "pools: {ä: {}}\n");
    let changed = github.file(&repository, path, tag).await.unwrap();
    assert!(matches!(changed, FileRead::Read { text, .. } if text.contains('ä')));
    let outside = github.file(&"other/app".into(), path, None).await;
    assert_eq!(outside, Ok(FileRead::Absent), "GitHub hides files that the App may not see");
    assert!(github.file(&"acme".into(), path, None).await.is_err());
}

#[tokio::test]
async fn an_app_posts_one_check_run_for_each_job() {
    let world = World::new().await;
    let github = world.client("acme", app());
    github.tell(&notice("1")).await.unwrap();
    world.stand_in.pull(|levers| levers.lose_answers = 0);
    github.tell(&notice("1")).await.unwrap();
    github.tell(&notice("2")).await.unwrap();
    let posted = world.stand_in.notices();
    let jobs: Vec<_> = posted.iter().filter_map(|it| it.external_id.as_deref()).collect();
    assert_eq!(jobs, ["1", "2"]);
    assert!(posted.iter().all(|it| it.is_check && it.name == "bullpen" && it.outcome == "failure"));
    assert_eq!(posted[0].title, "No runner for build");
    assert_eq!(
        posted[0].text,
        "`build`: `` there is no pool `c1`; did you mean ci? ``\n\nWhat to do: name a pool that is \
         configured, or none, in `runs-on`, and run the job again.\n"
    );
}

/// A fork's author chooses the job's name, and GitHub renders the notice as Markdown.
#[tokio::test]
async fn a_hostile_job_name_is_shown_as_plain_text() {
    let hostile = "x\n# all good\n![p](https://evil.example/p) @acme \u{1b}[2J\u{202e}`";
    let world = World::new().await;
    let notice = Notice { name: hostile.to_owned(), ..notice("1") };
    world.client("acme", app()).tell(&notice).await.unwrap();
    world.client("acme", pat()).tell(&notice).await.unwrap();
    let shown = r"x\n# all good\n![p](https://evil.example/p) @acme \u{1b}[2J\u{202e}`";
    let posted = world.stand_in.notices();
    assert_eq!(posted[0].title, format!("No runner for {shown}"));
    assert!(posted[0].text.starts_with(&format!("`` {shown} ``: ")), "{}", posted[0].text);
    let shortened: String = shown.chars().take(39).collect();
    assert!(posted[1].text.starts_with(&format!("{shortened}…: ")), "{}", posted[1].text);
}

#[tokio::test]
async fn a_token_posts_a_status() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let mut long = notice("1");
    long.name = "x".repeat(300);
    github.tell(&long).await.unwrap();
    let posted = world.stand_in.notices();
    assert!(!posted[0].is_check && posted[0].outcome == "error" && posted[0].name == "bullpen");
    assert!(posted[0].text.contains("x…: there is no pool `c1`"), "{}", posted[0].text);
    let path = Notice { commit: "../../x".to_owned(), ..notice("1") };
    assert!(matches!(github.tell(&path).await, Err(Fault::Denied(_))));
}

#[tokio::test]
async fn a_run_is_cancelled_and_a_later_attempt_is_left_alone() {
    let world = World::new().await;
    let github = world.client("acme", app());
    let repository = "acme/app".into();
    let job = world.job(&["x"]);
    let attempt = |number| RunAttempt::new(format!("{}.{number}", job.run_id));
    let second = JobOrder { run_id: Some(job.run_id), run_attempt: Some(2), ..order(&["x"]) };
    github.cancel(&repository, &attempt(1)).await.unwrap();
    assert_eq!(world.stand_in.over(job.id).await.conclusion, Some(Conclusion::Cancelled));
    github.cancel(&repository, &attempt(1)).await.unwrap();
    let second = world.stand_in.submit(second);
    github.cancel(&repository, &attempt(1)).await.unwrap();
    assert_eq!(world.stand_in.job(second.id).unwrap().conclusion, None);
    github.cancel(&repository, &RunAttempt::new("999999.1")).await.unwrap();
    let facts = github.jobs_of(&repository, &attempt(2)).await.unwrap();
    assert_eq!(
        facts.iter().map(|fact| fact.about.run.as_str()).collect::<Vec<_>>(),
        [attempt(2).as_str()]
    );
    let unknown = JobForge::job(&github, &repository, &JobId::new("999999")).await;
    assert_eq!(unknown, Err(Fault::NotFound));
}

#[tokio::test]
async fn the_provenance_tells_forks_and_dependabot_apart() {
    let world = World::new().await;
    let github = world.client("acme", app());
    let own = world.job(&["x"]);
    let fork = Some("mallory/app".to_owned());
    let theirs = world.stand_in.submit(JobOrder { fork, ..order(&["x"]) });
    let dependabots = world.stand_in.submit(JobOrder {
        event: Some("pull_request".to_owned()),
        actor: Some("dependabot[bot]".to_owned()),
        ..order(&["x"])
    });
    let event = Some("pull_request".to_owned());
    let proposed = world.stand_in.submit(JobOrder { event, ..order(&["x"]) });
    let expected = [
        (own, Origin::Own),
        (theirs, Origin::Fork),
        (dependabots, Origin::Dependabot),
        (proposed, Origin::PullRequest),
    ];
    for seen in [Visibility::Private, Visibility::Public] {
        for (job, origin) in &expected {
            let run = RunAttempt::new(format!("{}.1", job.run_id));
            let found = github.provenance(&"acme/app".into(), &run).await;
            let found = found.expect("the stand-in answers");
            assert_eq!((found.origin, found.visibility), (Some(*origin), Some(seen)));
        }
        world.stand_in.pull(|levers| levers.public_repositories = vec!["acme/app".to_owned()]);
    }
}

/// Four hundred jobs want a runner at once, and the stand-in enforces GitHub's points.
#[tokio::test]
async fn the_client_never_exceeds_githubs_points() {
    let world = World::new().await;
    world.stand_in.pull(|levers| levers.points_per_minute = Some(900));
    let github = world.client("acme", pat());
    let (mut made, mut postponed) = (0, 0);
    while made < 400 {
        match github.credential(&spec(&format!("bp-{made}"), true)).await {
            Ok(_) => made += 1,
            Err(Fault::Throttled) => {
                postponed += 1;
                // Half of the time that points count.
                world.clock.advance(Duration::from_secs(30));
            }
            Err(fault) => panic!("{fault}"),
        }
        // Housekeeping competes for the points and must not delay the credentials.
        let _ = github.runners().await;
    }
    assert!(postponed > 0, "the budget postponed no call");
    assert_eq!(world.stand_in.limited(), 0);
}

#[tokio::test]
async fn an_urgent_call_waits_for_the_budget() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let mut last = 0;
    while github.jit(&spec(&format!("bp-{last}"), true)).await.is_ok() {
        last += 1;
    }
    assert_eq!(last, 180, "the points of one minute");
    // All points come back together, a minute after the answers.
    world.clock.advance(Duration::from_secs(48));
    let advance = async { world.clock.advance(Duration::from_secs(12)) };
    let runner = spec("bp-last", true);
    let (made, ()) = join(github.jit(&runner), advance).await;
    made.unwrap();
}

#[tokio::test]
async fn the_client_calls_as_the_app_with_the_most_budget() {
    let more = "Iv1.more";
    let world = World::with(|options| {
        let known = options.app.clone().expect("the options have an App");
        options.more_apps = vec![KnownApp {
            id: more.to_owned(),
            installations: [(8, "acme".to_owned())].into(),
            ..known
        }];
        options.calls_per_hour = 200;
    })
    .await;
    let more_apps = vec![App { id: more.to_owned(), key: key(), installation: None }];
    let settings = Settings { more_apps, ..world.settings("acme", app()) };
    let mixed = Settings { login: pat(), ..settings.clone() };
    let mixed = GitHub::new(&mixed, Arc::clone(&world.clock));
    assert!(matches!(mixed, Err(BadSettings::MixedLogins)));
    let both = GitHub::new(&settings, Arc::clone(&world.clock)).unwrap();
    let alone = world.client("acme", app());
    let mut calls = [0, 0];
    for (github, calls) in [&both, &alone].into_iter().zip(&mut calls) {
        while github.offered_runner(Architecture::X64).await.is_ok() {
            *calls += 1;
        }
    }
    assert!((8..200).contains(&calls[1]), "housekeeping leaves the hour's calls: {calls:?}");
    assert_eq!(calls[0], 2 * calls[1], "two Apps have twice as many calls");
    assert_eq!(world.stand_in.limited(), 0);
}
