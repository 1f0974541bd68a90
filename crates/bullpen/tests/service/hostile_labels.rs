//! Labels that a fork writes to get a runner to which GitHub gives other jobs.
//!
//! Not here: every label that is refused (`bullpen_core::labels::ownership`).

use bullpen_github::stand_in::protocol::JobOrder;

use serde_json::Value;

use crate::world::{World, order};

/// The label of the job that a hostile runner is meant to catch, with its secrets.
const VICTIM: &str = "prod-deploy";

fn labelled(labels: &[&str]) -> JobOrder {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    JobOrder { labels, fork: Some("mallory/app".to_owned()), ..order("", "true") }
}

/// A pull request asks for a runner that also has the label of deployments, or of another run. The
/// service makes no runner for it, so that GitHub never has such a runner for the other job.
#[tokio::test]
async fn a_job_of_others_is_never_run_on_a_runner_made_for_a_hostile_job() {
    let world = World::new().await;
    let _served = world.serve().await;
    let victim = world.github.submit(labelled(&[VICTIM])).id;
    let mut refused = Vec::new();
    for labels in [
        &["bullpen/runner=small", VICTIM][..],
        &["bullpen=1/runner=small"],
        &["bullpen/runner=small/ami=ami-0123456789abcdef0"],
        &["bullpen/runner=small", "runner=small"],
    ] {
        refused.push(world.github.submit(labelled(labels)).id);
    }
    let own = world.github.submit(labelled(&["bullpen=${{ github.run_id }}-a/runner=small"])).id;
    world.over(own).await;
    for job in refused {
        world.settled(job).await;
        let told = world.run(&format!("explain {job} --json")).await.json();
        assert_eq!((&told["state"], &told["machine"]), (&"ended".into(), &Value::Null), "{told}");
    }
    assert_eq!(world.github.notices().len(), 4, "each author is told");
    let waits = world.github.job(victim).expect("it is there");
    assert_eq!((waits.runner, waits.conclusion), (None, None));
}
