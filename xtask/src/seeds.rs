//! The `seeds` step: the simulator on a hundred fixed seeds and on nine hundred that the commit's id
//! decides, optimised and with assertions.
//!
//! The fixed ones are compared from commit to commit; the others are new worlds for every commit, and
//! still the gate gives one commit one answer. A seed that fails prints the command that runs it again.
//!
//! They run in the build that has the planted bugs, with none of them active: one optimised build is
//! enough for two steps. That the bugs then change nothing is seen, not believed: a few worlds leave the
//! same trace as in the build that has none.
//!
//! Not here: what a seed decides and what is checked (`bullpen-sim`).

use std::ops::Range;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::gate::{Context, Part, Step};
use crate::place::{shown, succeed};
use crate::sabotage;
use crate::steps::AWS;

/// The seeds of every gate.
const FIXED: Range<u64> = 0..100;
/// How many the commit decides.
const DRAWN: u64 = 900;
/// Those that both builds run.
const COMPARED: Range<u64> = 0..4;

/// Which seeds, to the tests.
const SEEDS: &str = "BULLPEN_SEEDS";
/// What the tests print before what all worlds left.
const DIGEST: &str = "digest ";

/// The step.
pub(crate) const STEP: Step =
    Step { name: "seeds", what: "the simulator on the gate's seeds", part: Some(Part::Deep), run };

fn run(gate: &Context<'_>) -> Result<()> {
    let commit = gate.place.git(&["rev-parse", "HEAD"])?;
    for seeds in [FIXED, drawn(&commit)?] {
        succeed(&mut on(&seeds, sabotage::test(gate.place)))?;
    }
    let mut without = gate.place.command("cargo");
    without.args(["test", "--workspace", AWS]);
    let with = digest(on(&COMPARED, sabotage::test(gate.place)))?;
    let without = digest(on(&COMPARED, without))?;
    ensure!(
        with == without,
        "seeds {COMPARED:?} leave {with} in the build with planted bugs, {without} in the one without: \
         a bug that is not active changes something"
    );
    Ok(())
}

/// Tells a command of cargo's which test, and which seeds.
fn on(seeds: &Range<u64>, mut tests: Command) -> Command {
    let range = format!("{}..{}", seeds.start, seeds.end);
    tests.args(["--test", "seeds", "--", "--nocapture"]).env(SEEDS, range);
    tests
}

/// What the worlds left, as the tests print it.
fn digest(mut tests: Command) -> Result<String> {
    let shown = shown(&tests);
    let output = tests.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("could not start `{shown}`"))?;
    ensure!(output.status.success(), "`{shown}` failed ({})", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    let digest = said.lines().find_map(|line| line.split_once(DIGEST));
    let (_, digest) = digest.with_context(|| format!("`{shown}` printed no digest"))?;
    Ok(digest.to_owned())
}

/// The seeds of this commit, far from the fixed ones.
fn drawn(commit: &str) -> Result<Range<u64>> {
    let id = commit.trim().get(..8).context("a commit's id has at least eight digits")?;
    let first = 1_000_000 + u64::from(u32::from_str_radix(id, 16)?);
    Ok(first..first + DRAWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_decides_its_seeds() {
        let seeds = drawn("0000000a1b2c3d4e5f60718293a4b5c6d7e8f900\n").unwrap();
        assert_eq!(seeds, 1_000_010..1_000_910);
        assert!(drawn("short").is_err());
        assert!(drawn("not hexadecimal").is_err());
    }

    #[test]
    fn a_digest_is_what_follows_the_word() {
        let says = |text: &str| {
            let mut echo = Command::new("echo");
            echo.arg(text);
            echo
        };
        assert_eq!(digest(says("4 seeds clean, digest 00ff")).unwrap(), "00ff");
        assert!(digest(says("nothing")).unwrap_err().to_string().contains("no digest"));
        assert!(digest(Command::new("false")).unwrap_err().to_string().contains("failed"));
    }
}
