//! Tests of `release`: the request or the run attempt to release.
//!
//! Not here: the spelling of identities (`provision`).

use super::*;

fn released(flags: &[&str], pairs: &[(&str, &str)]) -> Result<String, String> {
    release(flags, pairs).map(|inputs| match inputs.released {
        ReleaseTarget::Request(id) => format!("request {id}"),
        ReleaseTarget::Run(run) => format!("run {run}"),
    })
}

#[test]
fn a_request_or_a_whole_run_attempt_is_released() {
    let workflow = [("GITHUB_RUN_ID", "4711"), ("GITHUB_RUN_ATTEMPT", "2")];
    for (flags, expected) in [
        (&["--request", "1.1.a"][..], "request 1.1.a"),
        (&["--name", "a"], "request 4711.2.a"),
        (&["--run-id", "9.1"], "run 9.1"),
        (&["--run-id", "9.1", "--name", "a"], "request 9.1.a"),
    ] {
        assert_eq!(released(flags, &workflow).as_deref(), Ok(expected));
    }
    assert_eq!(released(&[], &[("INPUT_RUN-ID", "9.1")]).as_deref(), Ok("run 9.1"));
}

#[test]
fn without_an_identity_the_whole_run_attempt_is_released() {
    let workflow = [("GITHUB_RUN_ID", "4711"), ("GITHUB_RUN_ATTEMPT", "2"), ("INPUT_REQUEST", "")];
    assert_eq!(released(&[], &workflow).as_deref(), Ok("run 4711.2"));
    assert_eq!(released(&[], &[]).as_deref(), Ok("run local.1"));
}

/// D32: two requests of one run have ids, labels and releases of their own.
#[test]
fn d32_a_request_is_released_on_its_own() {
    let workflow = [("GITHUB_RUN_ID", "4711"), ("GITHUB_RUN_ATTEMPT", "2")];
    assert_eq!(released(&["--name", "spot"], &workflow).as_deref(), Ok("request 4711.2.spot"));
    assert_eq!(released(&["--name", "big"], &workflow).as_deref(), Ok("request 4711.2.big"));
}
