//! Parses the runner program's output, line by line.
//!
//! The program's own lines begin with a UTC time (`2026-11-15 10:00:00Z: Listening for Jobs`);
//! jobs' output does not go through it. Its exit codes are in [`meaning`].
//!
//! Not here: reading the output (`process`).

use super::{ListenerRefusal, Observed};

/// Words that mean that GitHub is down, refuses, or limits: not the machine's fault. In lower case,
/// as the program and its HTTP library print them.
const SYSTEMIC_WORDS: &[&str] = &[
    "unauthorized",
    "forbidden",
    "bad credentials",
    "rate limit",
    "toomanyrequests",
    "too many requests",
    "internalservererror",
    "internal server error",
    "badgateway",
    "bad gateway",
    "serviceunavailable",
    "service unavailable",
    "gatewaytimeout",
    "gateway timeout",
    "connection refused",
    "connection reset",
    "name or service not known",
    "temporary failure in name resolution",
    "timed out",
    "token expired",
];

/// Words that mean that this listener cannot go on, for any cause.
const FATAL_WORDS: &[&str] = &[
    "runner no longer exists on the server",
    "runner registration has been deleted",
    "a session for this runner already exists",
    "session conflict",
    "not configured",
    "is deprecated and cannot receive messages",
    "a runner exists with the same name",
    "must not run with sudo",
];

/// What a line reports; most lines report nothing.
pub fn read(line: &str) -> Option<Observed> {
    let line = line.trim_end();
    if let Some(said) = after_time(line) {
        if said == "Listening for Jobs" {
            return Some(Observed::Listening { id: None });
        }
        if let Some(name) = said.strip_prefix("Running job: ") {
            return Some(Observed::JobStarted { name: name.to_owned() });
        }
        if let Some((name, result)) =
            said.strip_prefix("Job ").and_then(|rest| rest.rsplit_once(" completed with result: "))
        {
            let (name, result) = (name.to_owned(), result.to_owned());
            return Some(Observed::JobFinished { name, result });
        }
    }
    refusal(line).map(Observed::Trouble)
}

/// The reason why the program cannot go on, if the line gives one.
pub fn refusal(line: &str) -> Option<ListenerRefusal> {
    let lower = line.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let fatal = has(FATAL_WORDS);
    // GitHub may refuse a runner because it deleted it: a fatal word decides.
    let systemic = !fatal && has(SYSTEMIC_WORDS);
    (fatal || systemic).then(|| ListenerRefusal { detail: line.trim().to_owned(), systemic })
}

/// Whether a program that ended with this exit code updates itself and must be started again.
pub const fn is_update(code: i32) -> bool {
    matches!(code, 3 | 4)
}

/// The meaning of an exit code, for reports.
pub const fn meaning(code: i32) -> &'static str {
    match code {
        0 => "ended in order",
        1 => "terminated",
        2 => "failed, and would try again",
        _ if is_update(code) => "is updating itself",
        5 => "session conflict",
        7 => "version is deprecated",
        _ => "unknown",
    }
}

/// The rest of a line that begins with `<UTC time>: `.
fn after_time(line: &str) -> Option<&str> {
    let (time, said) = line.split_once("Z: ")?;
    let is_time =
        !time.is_empty() && time.chars().all(|c| c.is_ascii_digit() || "-: T.".contains(c));
    is_time.then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_markers_are_read() {
        let listening = read("2026-11-15 10:00:00Z: Listening for Jobs");
        assert_eq!(listening, Some(Observed::Listening { id: None }));
        let started = read("2026-11-15 10:00:00Z: Running job: build (x: y)");
        assert_eq!(started, Some(Observed::JobStarted { name: "build (x: y)".into() }));
        let finished = read("2026-11-15 10:00:01Z: Job build (x: y) completed with result: Failed");
        let (name, result) = ("build (x: y)".into(), "Failed".into());
        assert_eq!(finished, Some(Observed::JobFinished { name, result }));
        assert_eq!(read("√ Connected to GitHub"), None);
        assert_eq!(read("Current runner version: '2.335.0'"), None);
    }

    #[test]
    fn only_a_line_of_the_program_itself_is_a_marker() {
        assert_eq!(read("Listening for Jobs"), None);
        assert_eq!(read("echo Z: Listening for Jobs"), None);
    }

    #[test]
    fn a_cause_outside_the_machine_is_systemic() {
        for (line, systemic) in [
            ("Http response code: Unauthorized from 'POST https://x'", true),
            ("Response status code does not indicate success: 503 (Service Unavailable).", true),
            ("The HTTP request timed out after 00:01:40.", true),
            ("A session for this runner already exists.", false),
            ("The runner no longer exists on the server. Cleaning up local configuration.", false),
            ("An error occurred: Not configured. Run config.(sh/cmd)", false),
        ] {
            let Some(Observed::Trouble(refused)) = read(line) else { panic!("{line}") };
            assert_eq!(refused.systemic, systemic, "{line}");
        }
    }
}
