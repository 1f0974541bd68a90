//! A job that is a workflow's is run by `act`, on this machine and without containers: a real
//! program reads the workflow, and what it makes of it is how the job went.
//!
//! Not here: installing `act` (the gate's tools), or its process (`job`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use tokio::process::Command;

use crate::stand_in::protocol::JobMessage;

/// Where `act` is, in the environment of the job or of the program; else it is on the path.
const VARIABLE: &str = "BULLPEN_ACT";

/// `act` with the one job of this workflow that is called like it.
pub(super) fn command(
    workflow: &str,
    job: &JobMessage,
    environment: &BTreeMap<String, String>,
    diag: &Path,
) -> io::Result<Command> {
    let file = diag.join(format!("Job_{}.yml", job.job));
    fs::write(&file, workflow)?;
    let program = job.env.get(VARIABLE).or_else(|| environment.get(VARIABLE));
    let mut command = Command::new(program.map_or("act", String::as_str));
    command
        .arg("push")
        .args(["--job", &job.name])
        .arg("--workflows")
        .arg(file)
        .args(["--pull=false", "--no-cache-server", "--container-daemon-socket", "-"])
        .args(platforms(&job.labels));
    Ok(command)
}

/// Every label that the job has is this machine. `act` cannot be told of one with `=` in it, and one
/// of several is enough for it.
fn platforms(labels: &[String]) -> impl Iterator<Item = String> + '_ {
    let speakable = labels.iter().filter(|label| !label.contains('='));
    speakable.map(|label| format!("--platform={label}=-self-hosted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_act_would_misread_is_left_out() {
        let labels = ["bullpen", "runner=small"].map(str::to_owned);
        let told: Vec<String> = platforms(&labels).collect();
        assert_eq!(told, ["--platform=bullpen=-self-hosted"]);
    }
}
