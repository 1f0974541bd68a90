//! Bodies of AWS's query protocols: `Action=RunInstances&MinCount=1`.
//!
//! Not here: the meaning of fields.

use std::collections::BTreeMap;

use percent_encoding::percent_decode;

/// The fields of a body, by name.
pub(crate) fn fields(body: &[u8]) -> BTreeMap<String, String> {
    pairs(body).map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// One field of a body.
pub(crate) fn field(body: &[u8], wanted: &str) -> Option<String> {
    let (_, value) = pairs(body).find(|(name, _)| *name == wanted.as_bytes())?;
    Some(decoded(value))
}

fn pairs(body: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        (&pair[..end], pair.get(end + 1..).unwrap_or_default())
    })
}

/// Decodes `%41` and `+`. A malformed escape stays unchanged.
fn decoded(text: &[u8]) -> String {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_fields_by_name() {
        let body = b"Action=CreateTags&Tag.1.Value=a%3Db%26c+d&Odd=%4&Empty=&Alone";
        let fields = fields(body);
        let of = |name: &str| fields.get(name).map(String::as_str);
        assert_eq!(of("Action"), Some("CreateTags"));
        assert_eq!(of("Tag.1.Value"), Some("a=b&c d"));
        assert_eq!(of("Odd"), Some("%4"));
        assert_eq!((of("Empty"), of("Alone"), of("None")), (Some(""), Some(""), None));
        assert_eq!(field(body, "Action").as_deref(), Some("CreateTags"));
        assert_eq!(field(b"", "Action"), None);
    }
}
