//! Each kind of failed call gets the verdict that the engine relies on.

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::error::ErrorMetadata;

use super::*;

fn answered(code: Option<&str>, status: u16) -> Verdict {
    let mut error = ErrorMetadata::builder().message("as AWS says it");
    if let Some(code) = code {
        error = error.code(code);
    }
    let status = StatusCode::try_from(status).unwrap();
    judge(&SdkError::service_error(error.build(), HttpResponse::new(status, SdkBody::empty())))
}

fn not_sent(cause: ConnectorError) -> Verdict {
    judge(&SdkError::<ErrorMetadata, HttpResponse>::dispatch_failure(cause))
}

#[test]
fn a_condition_that_fails_is_lost_and_not_a_fault() {
    let verdict = answered(Some("ConditionalCheckFailedException"), 400);
    assert_eq!(verdict, Verdict::Lost);
    assert_eq!(verdict.written::<()>(), Ok(Written::Lost));
}

#[test]
fn throttling_and_contention_may_be_retried() {
    for code in
        ["ThrottlingException", "ProvisionedThroughputExceededException", "RequestThrottled"]
    {
        assert_eq!(answered(Some(code), 400).written::<()>(), Err(Fault::Throttled), "{code}");
    }
    let contended = answered(Some("TransactionConflictException"), 400);
    assert_eq!((contended.clone(), contended.fault()), (Verdict::Contended, Fault::Throttled));
}

#[test]
fn a_denial_says_the_code_and_what_to_do() {
    for (code, hint) in [
        ("AccessDeniedException", "policy"),
        ("ExpiredTokenException", "log in again"),
        ("UnrecognizedClientException", "get-caller-identity"),
        ("ResourceNotFoundException", "bullpen refresh"),
    ] {
        let Fault::Denied(text) = answered(Some(code), 400).fault() else { panic!("{code}") };
        assert!(text.contains(code) && text.contains(hint), "{text}");
    }
}

#[test]
fn a_message_of_many_lines_becomes_one_line() {
    let message =
        "The signature we calculated does not match.\n\nThe Canonical String was\n'POST\n/'";
    let Verdict::Refused(Fault::Denied(text)) = by_code("InvalidSignatureException", message, 400)
    else {
        panic!("not denied")
    };
    assert!(!text.contains('\n') && text.contains("the region"), "{text}");
}

#[test]
fn an_answer_without_a_code_hints_at_region_and_network() {
    let Fault::Unclassified(text) = answered(None, 404).fault() else { panic!("not unclassified") };
    assert!(text.contains("HTTP 404") && text.contains("region"), "{text}");
}

#[test]
fn a_call_that_aws_failed_at_may_have_landed() {
    for code in [Some("InternalServerError"), Some("NeverHeardOf"), None] {
        let verdict = answered(code, 500);
        assert_eq!(verdict.clone().written::<()>(), Ok(Written::Unknown), "{code:?}");
        assert!(matches!(verdict.fault(), Fault::Unavailable(_)), "{code:?}");
    }
}

#[test]
fn a_call_whose_connection_broke_may_have_landed() {
    let broken = not_sent(ConnectorError::io("connection reset".into()));
    assert_eq!(broken.clone().written::<()>(), Ok(Written::Unknown));
    let Fault::Unavailable(text) = broken.fault() else { panic!("not unavailable") };
    assert!(text.contains("connection reset"), "{text}");
    let late = judge(&SdkError::<ErrorMetadata, HttpResponse>::timeout_error("5 s"));
    assert_eq!(late.written::<()>(), Ok(Written::Unknown));
}

#[test]
fn without_credentials_the_sdk_sends_nothing() {
    let none = CredentialsError::not_loaded("no providers in chain");
    let Err(Fault::Denied(text)) =
        not_sent(ConnectorError::other(none.into(), None)).written::<()>()
    else {
        panic!("not denied")
    };
    assert!(text.contains("credentials") && text.contains("get-caller-identity"), "{text}");
}

#[test]
fn the_two_spellings_of_sqs_mean_the_same() {
    for code in ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"] {
        assert_eq!(answered(Some(code), 400).fault(), Fault::NotFound, "{code}");
    }
    let soon = answered(Some("AWS.SimpleQueueService.QueueDeletedRecently"), 400).fault();
    assert!(soon.is_transient(), "{soon}");
}

#[test]
fn an_unknown_code_is_kept_verbatim() {
    let fault = answered(Some("ValidationException"), 400).fault();
    assert_eq!(fault, Fault::Unclassified("ValidationException: as AWS says it".to_owned()));
}

#[test]
fn the_table_has_every_code_once() {
    let mut codes: Vec<_> = TABLE.iter().map(|(code, _)| *code).collect();
    codes.sort_unstable();
    let all = codes.len();
    codes.dedup();
    assert_eq!(codes.len(), all);
}
