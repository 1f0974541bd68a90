//! Scripts of runners and images in `runs-on.yml`: their text, or the address of a download.
//!
//! Not here: the form of an address ([`crate::download`]).

use super::finding::Findings;
use super::read::{Fields, text};
use crate::download::Download;

/// Reads the script of this key.
pub(super) fn read(fields: &Fields<'_>, key: &str, findings: &mut Findings) -> Option<String> {
    let node = fields.get(key)?;
    let script = text(node, key, findings)?;
    if let Some(Err(why)) = Download::named_by(script) {
        findings.error(node.mark, "bad-script-address", format!("`{key}` {why}")).instead(
            "write `https://host/path#sha256=` and its 64 digits, which `sha256sum FILE` prints",
        );
        return None;
    }
    Some(script.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::runs_on;

    const SUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn scripts_are_text_or_fetched() {
        let text = format!(
            "runners:\n  a:\n    cpu: 2\n    preinstall: |\n      true\n    prerun: s3://b/run#sha256={SUM}\n\
             images:\n  i:\n    ami: ami-01234567\n    preinstall: https://h/setup#sha256={SUM}\n"
        );
        let read = runs_on::read(text.as_bytes());
        let config = read.value().expect("the file has no errors");
        let fetched: Vec<String> = config.fetched_scripts().map(|one| one.url).collect();
        assert_eq!(fetched, ["s3://b/run", "https://h/setup"]);
    }
}
