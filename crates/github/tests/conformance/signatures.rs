//! Our signatures equal those of GitHub's library, and each side verifies the other's.
//!
//! Not here: refusing requests (`webhook::tests`).

use bullpen_core::mailbox::Secret;
use bullpen_github::webhook::{Secrets, sign};
use serde_json::{Value, json};

use crate::tools::ask;

const CASES: &[(&str, &str)] = &[
    ("It's a Secret to Everybody", "Hello, World!"),
    ("s", "{}"),
    ("schlüssel ☃", "{\"text\": \"ä ☃ \\u0000\"}\n"),
    // A secret longer than a block of the digest: HMAC then hashes the secret itself.
    ("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-and-more", "[1, 2,\t3]"),
];

#[test]
fn ours_are_githubs_and_githubs_are_ours() {
    let mut questions = Vec::new();
    for (secret, body) in CASES {
        let signature = sign(&Secret::new(secret), body.as_bytes());
        questions.push(json!({"ask": "sign", "secret": secret, "body": body}));
        questions
            .push(json!({"ask": "verify", "secret": secret, "body": body, "signature": signature}));
        questions.push(
            json!({"ask": "verify", "secret": "wrong", "body": body, "signature": signature}),
        );
    }
    let answers = ask(&questions);
    for ((secret, body), answer) in CASES.iter().zip(answers.chunks(3)) {
        let theirs = answer[0].as_str().expect("a signature is text");
        let secret = Secret::new(secret);
        assert_eq!(theirs, sign(&secret, body.as_bytes()));
        assert!(Secrets::new(&secret, None).unwrap().verify(body.as_bytes(), theirs));
        assert_eq!(answer[1..], [Value::Bool(true), Value::Bool(false)]);
    }
}
