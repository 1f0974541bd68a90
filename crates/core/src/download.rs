//! A download with a checksum: an address, and the SHA-256 that its content must have.
//!
//! A script can be a download too: its text is then one line, its address and its SHA-256, as
//! `https://host/path#sha256=…`. No bash script looks like that.
//!
//! Not here: fetching (`bullpen-agent`).

use serde::{Deserialize, Serialize};

/// Hexadecimal digits of a SHA-256.
const SHA256_CHARS: usize = 64;
/// Between an address and its checksum.
const SHA256_MARK: &str = "#sha256=";

/// An address, and the checksum of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// `https://…`, or `s3://bucket/key` in the region of the machine, fetched with its role.
    pub url: String,
    /// The content's SHA-256, in lower-case hexadecimal digits.
    pub sha256: String,
}

/// Why an address in place of a script is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadScriptAddress {
    /// The address has no checksum.
    #[error("is an address without its checksum")]
    NoChecksum,
    /// The checksum is no SHA-256.
    #[error("has a checksum that is not 64 hexadecimal digits")]
    BadChecksum,
    /// Machines do not fetch from such an address.
    #[error(
        "must be fetched from `https://host/path` or `s3://bucket/key`, without a user, a query \
         or white space"
    )]
    BadAddress,
}

impl Download {
    /// The download that a script's text names; none if the text is a script.
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

/// Whether machines fetch from this address. Other characters would need quoting in a shell, and a
/// query may be a signature, which is a secret.
pub fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("s3://"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/+%=,".contains(c);
    let has_path = |rest: &str| {
        rest.split_once('/').is_some_and(|(host, path)| !host.is_empty() && !path.is_empty())
    };
    rest.is_some_and(|rest| rest.chars().all(plain) && has_path(rest))
}

/// The SHA-256 in lower case, if `text` is one.
pub fn sha256(text: &str) -> Option<String> {
    let sum = text.to_ascii_lowercase();
    let is_valid = sum.len() == SHA256_CHARS && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_valid.then_some(sum)
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
