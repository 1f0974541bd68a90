//! Something that is fetched, and believed only if it is what it should be.
//!
//! A script too can be one: instead of its text there is one line, its address and its SHA-256, as
//! `https://host/path#sha256=…`. No script of bash looks like that.
//!
//! Not here: fetching (`bullpen-agent`).

use serde::{Deserialize, Serialize};

/// Hexadecimal digits of a SHA-256.
const SHA256_CHARS: usize = 64;
/// Between an address and its checksum.
const SHA256_MARK: &str = "#sha256=";

/// Where something is, and what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// `https://…`, or `s3://bucket/key` in the region of the machine, fetched with its role.
    pub url: String,
    /// Its SHA-256, in hexadecimal digits, small letters.
    pub sha256: String,
}

/// An address in place of a script that nothing can be fetched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadScriptAddress {
    /// Nothing says what is to come from there.
    #[error("is an address without its checksum")]
    NoChecksum,
    /// The checksum is none.
    #[error("has a checksum that is not 64 hexadecimal digits")]
    BadChecksum,
    /// It is no address that machines fetch from.
    #[error(
        "must be fetched from `https://host/path` or `s3://bucket/key`, without a user, a query \
         or white space"
    )]
    BadAddress,
}

impl Download {
    /// What a script names instead of saying what it does; none if it is a script.
    pub fn named_by(script: &str) -> Option<Result<Self, BadScriptAddress>> {
        let line = script.trim();
        let scheme = line.split_once("://")?.0;
        let is_address = ["https", "s3", "http"].contains(&scheme);
        if !is_address || line.contains(char::is_whitespace) {
            return None;
        }
        Some(Self::of_line(line))
    }

    fn of_line(line: &str) -> Result<Self, BadScriptAddress> {
        let (url, sum) = line.split_once(SHA256_MARK).ok_or(BadScriptAddress::NoChecksum)?;
        let sha256 = sha256(sum).ok_or(BadScriptAddress::BadChecksum)?;
        if !is_address(url) {
            return Err(BadScriptAddress::BadAddress);
        }
        Ok(Self { url: url.to_owned(), sha256 })
    }
}

/// Whether machines fetch from there. Anything else would need care in a shell, or is a secret in
/// disguise: a query signs requests.
pub fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("s3://"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/+%=,".contains(c);
    let has_path = |rest: &str| {
        rest.split_once('/').is_some_and(|(host, path)| !host.is_empty() && !path.is_empty())
    };
    rest.is_some_and(|rest| rest.chars().all(plain) && has_path(rest))
}

/// A SHA-256 as it is written here, if it is one.
pub fn sha256(text: &str) -> Option<String> {
    let sum = text.to_ascii_lowercase();
    let is_one = sum.len() == SHA256_CHARS && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_checksum_is_fetched() {
        let sum = "AB".repeat(32);
        for url in ["https://example.com/a/setup.sh", "s3://bucket/setup.sh"] {
            let named = Download::named_by(&format!("\n  {url}#sha256={sum}\n"));
            let sha256 = sum.to_lowercase();
            assert_eq!(named, Some(Ok(Download { url: url.to_owned(), sha256 })));
        }
    }

    #[test]
    fn a_script_is_a_script() {
        for script in ["", "true", "curl https://example.com/a | sh", "s3://b/k\ntrue", "a://b/c"] {
            assert_eq!(Download::named_by(script), None, "{script}");
        }
    }

    #[test]
    fn an_address_that_nothing_can_be_fetched_by_says_why() {
        use BadScriptAddress::{BadAddress, BadChecksum, NoChecksum};
        let sum = "0".repeat(64);
        for (script, why) in [
            ("https://example.com/a".to_owned(), NoChecksum),
            ("https://example.com/a#sha256=12".to_owned(), BadChecksum),
            (format!("http://example.com/a#sha256={sum}"), BadAddress),
            (format!("https://example.com/a?key=b#sha256={sum}"), BadAddress),
            (format!("s3://bucket#sha256={sum}"), BadAddress),
        ] {
            assert_eq!(Download::named_by(&script), Some(Err(why)), "{script}");
        }
    }
}
