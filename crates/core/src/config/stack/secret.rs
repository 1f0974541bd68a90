//! References to secrets: the place of a secret, never its value.
//!
//! Not here: fetching one.

use std::fmt;

use super::super::finding::Findings;
use super::super::node::{Node, Value};

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// In this variable of the environment.
    Env(String),
    /// In this file.
    File(String),
    /// In this parameter or secret of AWS.
    Arn(String),
}

impl SecretRef {
    /// Parses `env:NAME`, `file:/path` or an ARN. Other text is rejected: it may be a secret
    /// itself.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_name = !name.is_empty()
                && name.chars().all(legal)
                && !name.starts_with(|c: char| c.is_ascii_digit());
            return is_name.then(|| Self::Env(name.to_owned()));
        }
        if let Some(path) = text.strip_prefix("file:") {
            let is_path = path.starts_with('/') && !path.contains(char::is_control);
            return is_path.then(|| Self::File(path.to_owned()));
        }
        let mut parts = text.split(':');
        let is_arn = parts.next() == Some("arn")
            && parts.next().is_some_and(|partition| partition.starts_with("aws"))
            && matches!(parts.next(), Some("ssm" | "secretsmanager"))
            && parts.clone().count() >= 3
            && !text.contains(char::is_whitespace);
        is_arn.then(|| Self::Arn(text.to_owned()))
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Arn(arn) => f.write_str(arn),
        }
    }
}

/// Reads a reference. The findings never repeat the value, which may be the secret itself.
pub(super) fn read(node: &Node, key: &str, findings: &mut Findings) -> Option<SecretRef> {
    let reference = match &node.value {
        Value::Scalar(scalar) => SecretRef::parse(&scalar.text),
        Value::List(_) | Value::Map(_) => None,
    };
    if reference.is_none() {
        let message = format!("`{key}` must say where the secret is; the value is not shown");
        findings
            .error(node.mark, "literal-secret", message)
            .instead("write `env:NAME`, `file:/path`, or the ARN of a parameter or secret");
    }
    reference
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_and_secrets_are_not() {
        for text in [
            "env:GITHUB_TOKEN",
            "file:/run/secrets/key",
            "arn:aws:ssm:eu-west-1:123456789012:parameter/bullpen/key",
            "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:key",
        ] {
            assert_eq!(SecretRef::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "env:", "env:1A", "env:a b", "file:key", "ghp_abc", "arn:", "arn:aws:s3:::b"]
        {
            assert_eq!(SecretRef::parse(text), None, "{text}");
        }
    }
}
