//! What every job of the demo does.
//!
//! Not here: which jobs there are.

/// What each job does: a little work of its own, and a note of it that outlives its workspace.
pub(super) const JOB: &str = r#"
seq 1 20000 | sha256sum | cut -c 1-12 > sum.txt
sleep 0.2
printf 'process %s, checksum %s' "$$" "$(cat sum.txt)" > "$NOTE"
"#;
/// What the work comes to, on whatever machine.
pub(super) const CHECKSUM: &str = "f6351f5ead9a";
