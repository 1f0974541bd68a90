//! Words that no file of the repository may have.
//!
//! Not here: words that are forbidden in code alone (`source`).

use super::{File, Finding};

/// Registry hosts: the lock file and each user's settings say where packages come from.
const WORDS: &[&str] =
    &[concat!("crates", ".io/"), concat!("pypi", ".org"), concat!("registry", ".npmjs.org")];

/// Files that have to name a registry.
const EXEMPT: &[&str] = &["Cargo.lock", "deny.toml"];

/// The first line with each forbidden word, in each file.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        let text = file.text.to_lowercase();
        for word in WORDS {
            if let Some(at) = text.find(word) {
                let line = 1 + text[..at].matches('\n').count();
                let place = format!("{}:{line}", file.path);
                findings.push(Finding::failure(place, format!("names `{word}`")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_registry_host_is_found_in_any_case() {
        for word in WORDS {
            let text = format!("first\nsee https://{}x\n", word.to_uppercase());
            let findings = check(&[file("docs/a.md", &text)]);
            assert_eq!(findings.len(), 1, "{word}");
            assert_eq!(findings[0].place, "docs/a.md:2");
        }
    }

    #[test]
    fn the_lock_file_may_name_its_source() {
        let text = format!("source = \"{}\"", WORDS[0]);
        assert_eq!(check(&[file("Cargo.lock", &text)]), []);
        assert_eq!(check(&[file("docs/a.md", "the registry\n")]), []);
    }
}
