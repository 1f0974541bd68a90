//! The script of every job of the demo.
//!
//! Not here: the jobs (`service::script`, `workflow::script`).

/// A job's script: it works a little, and writes a note that outlives its workspace.
pub(super) const JOB: &str = r#"
seq 1 20000 | sha256sum | cut -c 1-12 > sum.txt
sleep 0.2
printf 'process %s, checksum %s' "$$" "$(cat sum.txt)" > "$NOTE"
"#;
/// The checksum that the script computes on every machine.
pub(super) const CHECKSUM: &str = "f6351f5ead9a";
