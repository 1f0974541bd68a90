//! A real workflow from a webhook to its conclusion: GitHub's label, our machine, and `act`, which
//! reads the workflow file and runs its steps.
//!
//! Not here: jobs that are scripts (`jobs`).

use std::fs;

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};

use crate::setup::CONFIG;
use crate::tool::act;
use crate::world::{REPOSITORY, World};

/// Two jobs, which the tests queue separately; a step's output is the next step's input.
const WORKFLOW: &str = r#"
on: push
jobs:
  build:
    runs-on: bullpen
    steps:
      - id: first
        run: echo "word=hello of $RUNNER_NAME" >> "$GITHUB_OUTPUT"
      - run: echo "${{ steps.first.outputs.word }}" > "$STAGE/said"
  fail:
    runs-on: bullpen
    steps:
      - run: exit 3
      - run: touch "$STAGE/went-on"
"#;

fn order(world: &World, name: &str) -> JobOrder {
    let directory = world.path("").display().to_string();
    let act = act().display().to_string();
    JobOrder {
        repository: REPOSITORY.to_owned(),
        labels: vec!["bullpen".to_owned()],
        name: Some(name.to_owned()),
        workflow: Some(WORKFLOW.to_owned()),
        env: [("STAGE", directory), ("BULLPEN_ACT", act)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        ..JobOrder::default()
    }
}

#[tokio::test]
async fn a_workflow_is_run_by_act_and_its_result_is_the_jobs() {
    // A label without `=` means the default pool; act cannot parse the other form.
    let config = CONFIG.replace("x-bullpen:\n", "x-bullpen:\n  default-pool: builders\n");
    let world = World::configured(&config, &[]).await;
    let _served = world.serve().await;
    let good = world.github.submit(order(&world, "build")).id;
    let over = world.over(good).await;
    assert_eq!(over.conclusion, Some(Conclusion::Success));
    assert_eq!(world.settled(good).await, End::Completed(Concluded::new("success")));
    let runner = over.runner.expect("it had one");
    let said = fs::read_to_string(world.path("said")).expect("the steps ran");
    assert_eq!(said.trim(), format!("hello of {runner}"));

    let bad = world.github.submit(order(&world, "fail")).id;
    assert_eq!(world.over(bad).await.conclusion, Some(Conclusion::Failure));
    assert_eq!(world.settled(bad).await, End::Completed(Concluded::new("failure")));
    assert!(!world.path("went-on").exists(), "a step that fails ends its job");
    assert_eq!(world.quiet().await.len(), 1, "one machine served both");
}
