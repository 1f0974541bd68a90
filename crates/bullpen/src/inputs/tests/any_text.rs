//! Property tests: no text makes reading panic, and every error is one line that names its place.
//!
//! Not here: the legal texts (`numbers`, `names` and the tests of each command).

use std::sync::LazyLock;

use bullpen_core::request::entry::fresh_label;
use proptest::prelude::*;

use super::*;

/// The names of all inputs.
static INPUTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let all = [flags::<ProvisionArgs>(), flags::<ReleaseArgs>(), flags::<RefreshArgs>()];
    let all: BTreeSet<String> = all.into_iter().flatten().collect();
    all.into_iter().collect()
});

/// Random texts, and texts that are almost legal.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9]{0,25}",
        "[-+.0-9eEx]{0,12}",
        "([0-9]{0,4}(ms|s|m|h|d|é)?){0,4}",
        "[a-z0-9.-]{0,12}\\.[0-9]{0,12}\\.[a-z]{0,3}",
        "\\{(\"[a-z]{0,3}\":\\{\"(cpu|mmem)\":[-0-9.e\"]{0,4}\\},?){0,3}\\}?",
        "https?://[\\[\\]a-z:/.0-9]{0,12}",
    ]
}

proptest! {
    #[test]
    fn no_text_panics(name in 0..INPUTS.len(), value in text()) {
        let name = &INPUTS[name];
        let variable = format!("INPUT_{}", name.to_uppercase());
        let pairs = [(variable.as_str(), value.as_str())];
        let flag = format!("--{name}={value}");
        for given in [&[][..], &[flag.as_str()]] {
            let pairs = if given.is_empty() { &pairs[..] } else { &[] };
            let machine = provision(given, pairs)
                .and_then(|inputs| inputs.machine.machine(None).map_err(|e| e.to_string()));
            let answers = [
                machine.map(drop),
                release(given, pairs).map(drop),
                refresh(given, pairs).map(drop),
            ];
            for error in answers.into_iter().filter_map(Result::err) {
                // For unknown flags clap prints an error of its own.
                let ours = !error.starts_with("error:");
                prop_assert!(!ours || error.lines().count() == 1, "{}", error);
                prop_assert!(!ours || error.starts_with("--") || error.starts_with("INPUT_"), "{}", error);
            }
        }
    }

    #[test]
    fn no_workflow_variable_panics(run in text(), attempt in text(), job in text(), step in text()) {
        let pairs = [
            ("GITHUB_RUN_ID", run.as_str()),
            ("GITHUB_RUN_ATTEMPT", attempt.as_str()),
            ("GITHUB_JOB", job.as_str()),
            ("GITHUB_ACTION", step.as_str()),
        ];
        if let Ok(inputs) = provision(&[], &pairs) {
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
            let label = fresh_label(&inputs.request, u128::MAX);
            prop_assert!(label.chars().all(legal) && label.len() <= 256);
        }
    }
}
