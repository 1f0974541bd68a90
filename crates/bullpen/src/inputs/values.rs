//! Parsers for the values of inputs: numbers, durations, choices, texts, paths, patterns,
//! addresses.
//!
//! Each parser returns the value, or an error with the legal values.
//!
//! Not here: the inputs themselves.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bullpen_core::config::forms;
use bullpen_core::mailbox::Secret;
use bullpen_core::request::TypePattern;
use bullpen_core::spelling;

use super::UsageError;
use super::given::Given;

/// The most patterns in one request: more than the families of machines.
const PATTERNS_MAX: usize = 100;
/// The largest secret: ten times an RSA key of 8192 bits in PEM.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// A whole number in this range, in plain digits.
pub(crate) fn whole(given: &Given, range: RangeInclusive<u32>) -> Result<u32, UsageError> {
    number(given.word(), &range).ok_or_else(|| given.refuse(whole_is(&range)))
}

/// The text for the legal values of [`whole`].
pub(crate) fn whole_is(range: &RangeInclusive<u32>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

/// Parses plain digits in the range: no sign, no exponent, no point.
pub(crate) fn number(text: &str, range: &RangeInclusive<u32>) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u32 = text.parse().ok().filter(|_| plain)?;
    range.contains(&number).then_some(number)
}

/// A positive duration such as `90s`, at most this long.
pub(crate) fn duration(given: &Given, most: Duration) -> Result<Duration, UsageError> {
    let read = forms::duration(given.word());
    read.filter(|&duration| !duration.is_zero() && duration <= most).ok_or_else(|| {
        let most = forms::duration_text(most);
        given.refuse(format!("a positive duration such as 90s, 10m or 1h30m, up to {most}"))
    })
}

/// `true` or `false`, in YAML's three spellings.
pub(crate) fn boolean(given: &Given) -> Result<bool, UsageError> {
    match given.word() {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        _ => Err(given.refuse("true or false")),
    }
}

/// One of these words.
pub(crate) fn choice<T: Copy>(given: &Given, choices: &[(&str, T)]) -> Result<T, UsageError> {
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let found = choices.iter().find(|(word, _)| *word == given.word());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let hint = spelling::hint(&spelling::nearest(given.word(), words.iter().copied()));
        given.refuse(format!("{}{hint}", words.join(" or ")))
    })
}

/// A text of one line that is not blank.
pub(crate) fn line(given: &Given) -> Result<String, UsageError> {
    let word = given.word();
    if word.is_empty() || word.chars().any(char::is_control) {
        return Err(given.refuse("one line of text"));
    }
    Ok(word.to_owned())
}

/// A path.
pub(crate) fn path(given: &Given) -> Result<PathBuf, UsageError> {
    line(given).map(PathBuf::from).map_err(|_| given.refuse("a path"))
}

/// A secret of one word. No error shows it.
pub(crate) fn secret_word(given: &Given) -> Result<Secret, UsageError> {
    let word = given.word();
    let plain = word.chars().all(|c| c.is_ascii_graphic());
    if word.is_empty() || !plain || word.len() > SECRET_BYTES_MAX {
        return Err(given.refuse_unseen("the value, not shown, is not one word of plain letters"));
    }
    Ok(Secret::new(word))
}

/// A secret of several lines. No error shows it.
pub(crate) fn secret_text(given: &Given) -> Result<Secret, UsageError> {
    let text = given.word();
    if text.is_empty() || text.contains('\0') || text.len() > SECRET_BYTES_MAX {
        return Err(given.refuse_unseen("the value, not shown, is blank, too long or not text"));
    }
    Ok(Secret::new(text))
}

/// Machine type patterns, separated by white space or commas.
pub(crate) fn patterns(given: &Given) -> Result<Vec<TypePattern>, UsageError> {
    let words = given.text.split(|c: char| c == ',' || c.is_whitespace());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let legal = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '*'].contains(&c);
    let plain = words.iter().all(|word| word.chars().all(legal));
    if words.is_empty() || !plain || words.len() > PATTERNS_MAX {
        let legal = "a list of machine types such as `c* m6i.large`, with * as a wildcard";
        return Err(given.refuse(legal));
    }
    Ok(words.into_iter().map(TypePattern::new).collect())
}

/// An address of an HTTP server, without a slash at its end. The command sends a token there, so
/// the address must be `https` or loopback.
pub(crate) fn address(given: &Given) -> Result<String, UsageError> {
    let text = given.word().trim_end_matches('/');
    let legal = |c: char| c.is_ascii_alphanumeric() || "-._~:/[]".contains(c);
    let refuse = || given.refuse("an https address, or an http one of this machine");
    let (scheme, rest) = text.split_once("://").ok_or_else(refuse)?;
    let host = rest.split('/').next().unwrap_or_default();
    let local = is_loopback(host);
    if host.is_empty()
        || !rest.chars().all(legal)
        || !(scheme == "https" || scheme == "http" && local)
    {
        return Err(refuse());
    }
    Ok(text.to_owned())
}

/// Whether `host` or `host:port` is loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
