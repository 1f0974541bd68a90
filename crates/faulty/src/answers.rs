//! Refusals in AWS's own shape: status, body, and the headers that AWS sets.
//!
//! DynamoDB and SQS put an error's name in the body's `__type`; SQS adds `x-amzn-query-error`, the
//! name in its older protocol. Only other JSON services get `x-amzn-errortype`. The query protocols
//! answer in XML: EC2 with a list of errors, the older services with one. All shapes are written
//! from AWS's documentation and the SDK's models, not recorded from AWS.
//!
//! Not here: which call is refused (`levers`).

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::call::{Head, Service};
use crate::fault::Fault;

const DYNAMODB: &str = "com.amazonaws.dynamodb.v20120810#";
const SQS: &str = "com.amazonaws.sqs#";
/// Codes of the query protocols have no namespace.
const FORM: &str = "";
/// The namespace of errors from AWS's front end, before a service sees the call.
const FRONT: &str = "com.amazon.coral.availability#";
const SERVICE: &str = "com.amazon.coral.service#";
/// The request id in every refusal.
const REQUEST: &str = "00000000-0000-4000-8000-000000000000";
/// The most items that DynamoDB accepts in one transaction.
const TRANSACTION_ITEMS_MAX: usize = 100;

/// An error before it is rendered as JSON or XML.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: u16,
    namespace: &'static str,
    code: &'static str,
    message: String,
    /// One reason per item of a cancelled transaction.
    reasons: Option<Vec<Value>>,
}

/// The proxy's answer in the target's place; `None` if the fault is not a refusal.
pub(crate) fn refusal(
    fault: Fault,
    call: &Head,
    body: &Bytes,
    draw: u64,
) -> Option<Response<Full<Bytes>>> {
    let refusal = if fault == Fault::Conflict {
        conflict(&call.operation, body, draw)
    } else {
        let (status, namespace, code, message) = words(fault, call.service)?;
        Refusal { status, namespace, code, message: message.to_owned(), reasons: None }
    };
    Some(if call.service.has_forms() {
        refusal.xml(call.service)
    } else {
        refusal.json(call.service)
    })
}

type Words = (u16, &'static str, &'static str, &'static str);

fn words(fault: Fault, service: Service) -> Option<Words> {
    let rate = "Rate of requests exceeds the allowed throughput.";
    let words = match (fault, service) {
        (Fault::Throttled, Service::Sqs) => (403, SQS, "RequestThrottled", rate),
        (Fault::Throttled | Fault::ThroughputExceeded, Service::Ec2) => {
            (503, FORM, "RequestLimitExceeded", "Request limit exceeded.")
        }
        (Fault::Throttled | Fault::ThroughputExceeded, Service::Query) => {
            (400, FORM, "Throttling", "Rate exceeded")
        }
        (Fault::ThroughputExceeded, Service::DynamoDb) => (
            400,
            DYNAMODB,
            "ProvisionedThroughputExceededException",
            "The level of configured provisioned throughput for the table was exceeded. Consider \
             increasing your provisioning level with the UpdateTable API.",
        ),
        (Fault::Throttled | Fault::ThroughputExceeded, _) => {
            (400, FRONT, "ThrottlingException", rate)
        }
        (Fault::InternalError, Service::Sqs) => {
            (500, SERVICE, "InternalFailure", "We encountered an internal error.")
        }
        (Fault::InternalError, Service::Ec2) => {
            (500, FORM, "InternalError", "An internal error has occurred")
        }
        (Fault::InternalError, Service::Query) => {
            (500, FORM, "InternalFailure", "We encountered an internal error.")
        }
        (Fault::Unavailable, Service::Ec2) => {
            (503, FORM, "Unavailable", "The server is overloaded and can't handle the request.")
        }
        (Fault::InternalError, _) => {
            (500, DYNAMODB, "InternalServerError", "Internal server error")
        }
        (Fault::Unavailable, _) => {
            (503, FRONT, "ServiceUnavailable", "Service is temporarily unavailable.")
        }
        (
            Fault::ResetBefore
            | Fault::AnswerLost
            | Fault::AnswerReset
            | Fault::SlowAnswer
            | Fault::Conflict,
            _,
        ) => return None,
    };
    Some(words)
}

fn conflict(operation: &str, body: &Bytes, draw: u64) -> Refusal {
    let plain = Refusal {
        status: 400,
        namespace: DYNAMODB,
        code: "TransactionConflictException",
        message: "Transaction is ongoing for the item".to_owned(),
        reasons: None,
    };
    if operation != "TransactWriteItems" {
        return plain;
    }
    let items = transaction_items(body);
    let hit = usize::try_from(draw).unwrap_or(usize::MAX) % items;
    let reason = |item| {
        if item == hit {
            json!({"Code": "TransactionConflict", "Message": plain.message})
        } else {
            json!({"Code": "None"})
        }
    };
    let codes: Vec<&str> =
        (0..items).map(|item| if item == hit { "TransactionConflict" } else { "None" }).collect();
    let message = format!(
        "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
        codes.join(", ")
    );
    let reasons = Some((0..items).map(reason).collect());
    Refusal { code: "TransactionCanceledException", message, reasons, ..plain }
}

/// The number of items in a transaction; at least one, so that there is a reason to give.
fn transaction_items(body: &Bytes) -> usize {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let items = body.get("TransactItems").and_then(Value::as_array).map_or(1, Vec::len);
    items.clamp(1, TRANSACTION_ITEMS_MAX)
}

impl Refusal {
    fn xml(self, service: Service) -> Response<Full<Bytes>> {
        let Self { status, code, message, .. } = self;
        let error = format!("<Code>{code}</Code><Message>{message}</Message>");
        let body = if service == Service::Ec2 {
            format!(
                "<Response><Errors><Error>{error}</Error></Errors>\
                 <RequestID>{REQUEST}</RequestID></Response>"
            )
        } else {
            let culprit = culprit(status);
            format!(
                "<ErrorResponse><Error><Type>{culprit}</Type>{error}</Error>\
                 <RequestId>{REQUEST}</RequestId></ErrorResponse>"
            )
        };
        let body = format!(r#"<?xml version="1.0" encoding="UTF-8"?>{body}"#);
        let response = Response::builder().status(status);
        let response = response.header(CONTENT_TYPE, "text/xml;charset=UTF-8");
        response.body(Full::new(body.into())).unwrap_or_else(|_| bad_gateway())
    }

    fn json(self, service: Service) -> Response<Full<Bytes>> {
        let mut body = json!({"__type": format!("{}{}", self.namespace, self.code)});
        // DynamoDB spells only the message of a cancelled transaction with a capital.
        let message = if self.reasons.is_some() { "Message" } else { "message" };
        body[message] = self.message.into();
        if let Some(reasons) = self.reasons {
            body["CancellationReasons"] = Value::Array(reasons);
        }
        let mut response = Response::builder()
            .status(self.status)
            .header(CONTENT_TYPE, "application/x-amz-json-1.0")
            .header("x-amzn-requestid", REQUEST);
        if service == Service::Sqs {
            let error = format!("{};{}", self.code, culprit(self.status));
            response = response.header("x-amzn-query-error", error);
        }
        if service == Service::Other {
            response = response.header("x-amzn-errortype", self.code);
        }
        response.body(Full::new(body.to_string().into())).unwrap_or_else(|_| bad_gateway())
    }
}

/// The party that caused the error, in AWS's words.
fn culprit(status: u16) -> &'static str {
    if status < 500 { "Sender" } else { "Receiver" }
}

/// The proxy's answer if the target does not answer: not a fault, and not in AWS's shape.
pub(crate) fn bad_gateway() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new("the target did not answer".into()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_faults_are_refusals_and_the_others_happen_on_the_wire() {
        for service in [Service::DynamoDb, Service::Sqs, Service::Ec2, Service::Query] {
            let is_refusal = |fault: &Fault| words(*fault, service).is_some();
            let refusals: Vec<Fault> = Fault::ALL.into_iter().filter(is_refusal).collect();
            let four = [
                Fault::Throttled,
                Fault::ThroughputExceeded,
                Fault::InternalError,
                Fault::Unavailable,
            ];
            assert_eq!(refusals, four, "{service:?}");
        }
    }

    #[test]
    fn a_cancelled_transaction_has_a_reason_for_each_item() {
        let body = Bytes::from(r#"{"TransactItems":[{},{},{}]}"#);
        let refusal = conflict("TransactWriteItems", &body, 4);
        let codes: Vec<Value> =
            refusal.reasons.unwrap().into_iter().map(|reason| reason["Code"].clone()).collect();
        assert_eq!(codes, ["None", "TransactionConflict", "None"]);
        assert!(refusal.message.ends_with("[None, TransactionConflict, None]"));
        let odd = conflict("TransactWriteItems", &Bytes::from("no json"), 4);
        assert_eq!(odd.reasons.unwrap().len(), 1);
    }
}
