//! The table that maps GitHub's refusals to faults.
//!
//! A *refusal* is an answer that is not 2xx. The fault keeps GitHub's message, shortened, where an
//! operator has to act; the engine matches on the fault alone.
//!
//! Not here: statuses with a special meaning for one call (a busy runner's 422, a taken name's
//! 409); those calls check the status before they classify.

use std::time::Duration;

use bullpen_core::ports::Fault;
use bullpen_core::time::Timestamp;
use serde::Deserialize;

use crate::limits::{MESSAGE_CHARS_MAX, PAUSE_DEFAULT, PAUSE_MAX};
use crate::wire::Answer;

/// The meaning of a 404 for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFoundMeans {
    /// The object is gone: an ordinary answer.
    Thing,
    /// The organisation, repository or installation is missing, or the credential may not see it:
    /// GitHub answers both with a 404.
    Scope,
}

/// Maps a refusal to a fault.
pub(crate) fn classify(answer: &Answer, absent: NotFoundMeans) -> Fault {
    let status = answer.status;
    let message = message(answer);
    match status {
        _ if is_throttled(answer) => Fault::Throttled,
        301 | 302 | 307 | 308 => {
            denied(status, &message, "it was renamed or moved: use its new name")
        }
        401 => denied(
            status,
            &message,
            "the credential is wrong, expired or revoked, or this machine's clock is off: check \
             the token, or the App's id, key and clock",
        ),
        403 => denied(
            status,
            &message,
            "the credential is valid but may not do this: for an organisation's runners it needs \
             \"Self-hosted runners: write\", for a repository's \"Administration: write\", to read \
             runs \"Actions: read\", to cancel them \"Actions: write\", to report on a commit \
             \"Checks: write\" as an App and \"Commit statuses: write\" with a token",
        ),
        404 if absent == NotFoundMeans::Scope => denied(
            status,
            &message,
            "the organisation or repository does not exist, or the credential may not manage its \
             runners: check the name, and that the App is installed there",
        ),
        404 | 410 => Fault::NotFound,
        408 | 500..=599 => Fault::Unavailable(format!("GitHub answered {status} ({message})")),
        _ => Fault::Unclassified(format!("{status} {message}")),
    }
}

/// How long to make no calls, if the answer is a rate limit.
pub(crate) fn pause_for(answer: &Answer, now: Timestamp) -> Option<Duration> {
    if !is_throttled(answer) {
        return None;
    }
    let wait = match (answer.retry_after, answer.remaining, answer.reset) {
        (Some(seconds), _, _) => Duration::from_secs(seconds),
        (None, Some(0), Some(reset)) => {
            // A second more, because GitHub rounds the reset to whole seconds.
            Timestamp::from_millis(reset.saturating_add(1).saturating_mul(1000)).since(now)
        }
        _ => PAUSE_DEFAULT,
    };
    Some(wait.min(PAUSE_MAX))
}

/// GitHub answers 403 to both a missing permission and a rate limit.
fn is_throttled(answer: &Answer) -> bool {
    let limited = answer.retry_after.is_some()
        || answer.remaining == Some(0)
        || message(answer).to_lowercase().contains("rate limit");
    answer.status == 429 || (answer.status == 403 && limited)
}

fn denied(status: u16, message: &str, hint: &str) -> Fault {
    Fault::Denied(format!("GitHub answered {status} ({message}); {hint}"))
}

/// GitHub's message, shortened and without control characters.
fn message(answer: &Answer) -> String {
    #[derive(Deserialize)]
    struct Body {
        message: String,
    }
    let text = serde_json::from_slice::<Body>(&answer.body).map(|body| body.message);
    let text = text.unwrap_or_else(|_| "no message".to_owned());
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, message: &str) -> Answer {
        let body = serde_json::json!({"message": message, "status": status.to_string()});
        Answer { status, body: body.to_string().into(), ..Answer::default() }
    }

    #[test]
    fn each_refusal_has_its_fault() {
        let fault = |status, message| classify(&answer(status, message), NotFoundMeans::Thing);
        for (status, message) in [
            (429, "You have exceeded a secondary rate limit"),
            (403, "You have exceeded a secondary rate limit. Please wait a few minutes"),
            (403, "API rate limit exceeded for installation ID 1."),
        ] {
            assert_eq!(fault(status, message), Fault::Throttled, "{status} {message}");
        }
        for status in [408, 500, 502, 503, 504] {
            let text = format!("GitHub answered {status} (Server Error)");
            assert_eq!(fault(status, "Server Error"), Fault::Unavailable(text));
        }
        for status in [404, 410] {
            assert_eq!(fault(status, "Not Found"), Fault::NotFound);
        }
        for (status, message, hint) in [
            (401, "Bad credentials", "check the token"),
            (403, "Resource not accessible by integration", "Self-hosted runners: write"),
            (301, "Moved Permanently", "use its new name"),
            (307, "Temporary Redirect", "use its new name"),
        ] {
            let Fault::Denied(text) = fault(status, message) else {
                panic!("{status} is not denied")
            };
            assert!(text.contains(message) && text.contains(hint), "{text}");
        }
        assert_eq!(fault(422, "Invalid"), Fault::Unclassified("422 Invalid".to_owned()));
        assert_eq!(fault(409, "Taken"), Fault::Unclassified("409 Taken".to_owned()));
    }

    #[test]
    fn the_fault_of_a_missing_scope_advises_what_to_check() {
        let fault = classify(&answer(404, "Not Found"), NotFoundMeans::Scope);
        assert!(matches!(fault, Fault::Denied(text) if text.contains("App is installed")));
    }

    #[test]
    fn a_rate_limit_pauses_for_as_long_as_github_asks() {
        let now = Timestamp::from_millis(1_000_000);
        let limited = |retry_after, remaining, reset| Answer {
            retry_after,
            remaining,
            reset,
            ..answer(403, "stop")
        };
        let pause = |answer: &Answer| pause_for(answer, now).map(|wait| wait.as_secs());
        assert_eq!(pause(&limited(Some(7), None, None)), Some(7));
        assert_eq!(pause(&limited(Some(7), Some(0), Some(1_100))), Some(7));
        assert_eq!(pause(&limited(None, Some(0), Some(1_100))), Some(101));
        assert_eq!(pause(&limited(None, Some(0), None)), Some(60));
        assert_eq!(pause(&limited(None, Some(0), Some(i64::MAX))), Some(3600));
        assert_eq!(pause(&answer(429, "stop")), Some(60));
        assert_eq!(pause(&limited(None, Some(9), Some(1_100))), None);
        assert_eq!(pause(&answer(200, "fine")), None);
    }

    #[test]
    fn githubs_message_is_shortened_and_cannot_break_a_line() {
        let long = format!("a\nb{}", "x".repeat(1000));
        let Fault::Unclassified(text) = classify(&answer(418, &long), NotFoundMeans::Thing) else {
            panic!("418 is classified");
        };
        assert!(!text.contains('\n') && text.len() < 300, "{text}");
        let nonsense = Answer { status: 418, body: "<html>".into(), ..Answer::default() };
        let fault = classify(&nonsense, NotFoundMeans::Thing);
        assert_eq!(fault, Fault::Unclassified("418 no message".to_owned()));
    }
}
