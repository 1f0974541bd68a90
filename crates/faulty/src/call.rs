//! The service, operation and group of a call, from its headers or its form.
//!
//! A call's *operation* is the last part of `X-Amz-Target`, as in `DynamoDB_20120810.PutItem`, or
//! the `Action` of a form, as in EC2's query protocol. Its *group* is the access key id in its
//! signature: a test gives separate keys to the callers that it wants to count separately.
//!
//! Not here: other parts of bodies (`answers` reads transactions).

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};

use crate::form;

/// The operation of a call without one, and the group of an unsigned call.
const NONE: &str = "-";
/// The content type of the query protocols.
const FORM: &str = "application/x-www-form-urlencoded";

/// The service whose protocol a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    DynamoDb,
    Sqs,
    /// EC2's query protocol.
    Ec2,
    /// The query protocol of the older services: IAM, STS.
    Query,
    /// Another service with an `X-Amz-Target`.
    Other,
    /// No target and no action: a call of the emulator's own interface, or not an AWS client.
    None,
}

impl Service {
    /// Whether its calls are forms.
    pub(crate) fn has_forms(self) -> bool {
        matches!(self, Self::Ec2 | Self::Query)
    }
}

/// The service, operation and group of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) service: Service,
    pub(crate) operation: String,
    pub(crate) group: String,
}

impl Head {
    pub(crate) fn of(headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let signed = text(AUTHORIZATION.as_str()).and_then(credential);
        let is_form = || text(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with(FORM));
        let action = || form::field(body, "Action").filter(|_| is_form());
        let (service, operation) = match text("x-amz-target") {
            Some(target) => split(target),
            None => match action() {
                Some(action) => (queried(signed), action),
                None => (Service::None, NONE.to_owned()),
            },
        };
        let group = signed.and_then(access_key).unwrap_or(NONE).to_owned();
        Self { service, operation, group }
    }

    /// The partition key of the item, if the call is about one item in DynamoDB.
    pub(crate) fn item(&self, body: &[u8]) -> Option<String> {
        if self.service != Service::DynamoDb {
            return None;
        }
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        body.pointer("/Key/pk/S")?.as_str().map(str::to_owned)
    }
}

fn split(target: &str) -> (Service, String) {
    let (service, operation) = target.rsplit_once('.').unwrap_or((target, NONE));
    let service = match service {
        "AmazonSQS" => Service::Sqs,
        service if service.starts_with("DynamoDB_") => Service::DynamoDb,
        _ => Service::Other,
    };
    (service, operation.to_owned())
}

/// The service of a form, which only the signature names.
fn queried(credential: Option<&str>) -> Service {
    let service = credential.and_then(|credential| credential.split('/').nth(3));
    if service == Some("ec2") { Service::Ec2 } else { Service::Query }
}

/// The credential in `AWS4-HMAC-SHA256 Credential=KEY/20260101/us-east-1/sqs/aws4_request, ...`.
fn credential(authorization: &str) -> Option<&str> {
    let (_, credential) = authorization.split_once("Credential=")?;
    credential.split(',').next()
}

fn access_key(credential: &str) -> Option<&str> {
    credential.split('/').next().filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&'static str, &'static str)]) -> Head {
        with_body(pairs, "")
    }

    fn with_body(pairs: &[(&'static str, &'static str)], body: &str) -> Head {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        Head::of(&pairs.collect(), body.as_bytes())
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
    fn a_call_about_one_item_names_it() {
        let call = head(&[("x-amz-target", "DynamoDB_20120810.GetItem")]);
        let item = call.item(br#"{"TableName":"t","Key":{"pk":{"S":"in#i-1"}}}"#);
        assert_eq!(item.as_deref(), Some("in#i-1"));
        assert_eq!(call.item(br#"{"TableName":"t"}"#), None);
        assert_eq!(head(&[("x-amz-target", "AmazonSQS.SendMessage")]).item(b"{}"), None);
    }

    #[test]
    fn a_form_names_its_operation_and_its_signature_the_service() {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let signed = |credential| [form, ("authorization", credential)];
        let body = "Action=CreateFleet&Version=2016-11-15";
        let ec2 = "AWS4-HMAC-SHA256 Credential=K/20260101/eu-west-1/ec2/aws4_request, Signature=0";
        let call = with_body(&signed(ec2), body);
        assert_eq!(call.service, Service::Ec2);
        assert_eq!((call.operation.as_str(), call.group.as_str()), ("CreateFleet", "K"));
        let sts = "AWS4-HMAC-SHA256 Credential=K/20260101/eu-west-1/sts/aws4_request, Signature=0";
        assert_eq!(with_body(&signed(sts), body).service, Service::Query);
        assert_eq!(with_body(&[form], "no action").service, Service::None);
        assert_eq!(with_body(&[], body).service, Service::None);
    }

    #[test]
    fn other_calls_have_no_operation_and_no_group() {
        let call = head(&[("authorization", "Bearer x")]);
        assert_eq!(call.service, Service::None);
        assert_eq!((call.operation.as_str(), call.group.as_str()), ("-", "-"));
        assert_eq!(head(&[("x-amz-target", "odd")]).service, Service::Other);
    }
}
