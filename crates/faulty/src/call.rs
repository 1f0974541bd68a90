//! A call as its headers tell of it.
//!
//! A call's *operation* is the last part of `X-Amz-Target`, as in `DynamoDB_20120810.PutItem`. Its
//! *group* is the access key id in its signature: callers that a test has to tell apart are given
//! keys of their own.
//!
//! Not here: bodies (`answers` reads the one it must).

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

/// The operation of a call that names none, and the group of one that is not signed.
const NONE: &str = "-";

/// Whose protocol a call speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    DynamoDb,
    Sqs,
    /// It has a target that is neither.
    Other,
    /// It has no target: an emulator's own interface, or no client of AWS's.
    None,
}

/// What the headers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) service: Service,
    pub(crate) operation: String,
    pub(crate) group: String,
}

impl Head {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (service, operation) = match text("x-amz-target") {
            None => (Service::None, NONE),
            Some(target) => split(target),
        };
        let group = text(AUTHORIZATION.as_str()).and_then(access_key).unwrap_or(NONE);
        Self { service, operation: operation.to_owned(), group: group.to_owned() }
    }
}

fn split(target: &str) -> (Service, &str) {
    let (service, operation) = target.rsplit_once('.').unwrap_or((target, NONE));
    let service = match service {
        "AmazonSQS" => Service::Sqs,
        service if service.starts_with("DynamoDB_") => Service::DynamoDb,
        _ => Service::Other,
    };
    (service, operation)
}

/// The key of `AWS4-HMAC-SHA256 Credential=KEY/20260101/us-east-1/sqs/aws4_request, ...`.
fn access_key(authorization: &str) -> Option<&str> {
    let (_, credential) = authorization.split_once("Credential=")?;
    credential.split(['/', ',']).next().filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&'static str, &'static str)]) -> Head {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        Head::of(&pairs.collect())
    }

    #[test]
    fn a_signed_call_names_its_operation_and_its_caller() {
        let call = head(&[
            ("x-amz-target", "DynamoDB_20120810.PutItem"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AGENT1/20260101/eu-west-1/dynamodb/aws4_request, \
                 SignedHeaders=host, Signature=0",
            ),
        ]);
        assert_eq!(call.service, Service::DynamoDb);
        assert_eq!((call.operation.as_str(), call.group.as_str()), ("PutItem", "AGENT1"));
        let call = head(&[("x-amz-target", "AmazonSQS.SendMessage")]);
        assert_eq!(call.service, Service::Sqs);
        assert_eq!((call.operation.as_str(), call.group.as_str()), ("SendMessage", "-"));
    }

    #[test]
    fn anything_else_has_no_names() {
        let call = head(&[("authorization", "Bearer x")]);
        assert_eq!(call.service, Service::None);
        assert_eq!((call.operation.as_str(), call.group.as_str()), ("-", "-"));
        assert_eq!(head(&[("x-amz-target", "odd")]).service, Service::Other);
    }
}
