//! Sentences name their actors: comments, strings and documents use none of the words that stand in
//! for one, and the glossary has the words to use instead.
//!
//! Not here: words that may stand in no file for another reason (`words`).

use std::collections::BTreeSet;

use super::code::{lines_with, prose_only};
use super::{File, Finding, is_rust};

/// Words that hide who acts. They are put together here, so that this file does not name them.
const STAND_INS: &[&str] = &[
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("some", "one"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("any", "one"),
    concat!("who", "m"),
    concat!("what", "ever"),
    concat!("one", " that"),
];

/// The endings of files that people read.
const READ: &[&str] = &[".rs", ".md", ".toml", ".yml", ".sh"];

/// Texts that are not ours: licences and what a lock file's tool writes.
const FOREIGN: &[&str] = &["LICENSE-MIT", "LICENSE-APACHE"];

const GLOSSARY: &str = "ARCHITECTURE.md";
const GLOSSARY_BEGINS: &str = "## Glossary\n";
/// More words than a newcomer can keep in mind are none.
const TERMS_MAX: usize = 40;

/// Where the ports are: each is named after a term.
const PORTS: &str = "crates/core/src/ports/";
/// Ports that a reader of Rust knows without a glossary.
const PLAIN_PORTS: &[&str] = &["clock", "ids", "ports"];

/// Every rule on who acts.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files.iter().flat_map(names_its_actors).collect();
    findings.extend(has_a_complete_glossary(files));
    findings
}

fn names_its_actors(file: &File) -> Vec<Finding> {
    let is_read = READ.iter().any(|ending| file.path.ends_with(ending));
    if !is_read || FOREIGN.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let prose = if is_rust(&file.path) { prose_only(&file.text) } else { file.text.clone() };
    let prose = prose.to_lowercase();
    let mut findings = Vec::new();
    for word in STAND_INS {
        findings.extend(lines_with(&prose, word).into_iter().map(|line| {
            let text =
                format!("says `{word}`; name who acts (the glossary of {GLOSSARY} has the words)");
            Finding::failure(format!("{}:{line}", file.path), text)
        }));
    }
    findings
}

/// The glossary is sorted, short, and has a term for every port.
fn has_a_complete_glossary(files: &[File]) -> Vec<Finding> {
    let Some(file) = files.iter().find(|file| file.path == GLOSSARY) else { return Vec::new() };
    let Some((_, section)) = file.text.split_once(GLOSSARY_BEGINS) else {
        return vec![Finding::failure(GLOSSARY, "has no glossary")];
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let terms: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()).skip(1).collect();
    let mut findings = Vec::new();
    if terms.len() > TERMS_MAX {
        let text = format!("the glossary has {} terms, more than {TERMS_MAX}", terms.len());
        findings.push(Finding::failure(GLOSSARY, text));
    }
    for pair in terms.windows(2).filter(|pair| pair[0] >= pair[1]) {
        let text = format!("the glossary lists `{}` before `{}`", pair[0], pair[1]);
        findings.push(Finding::failure(GLOSSARY, text));
    }
    let ports = files.iter().filter(|file| file.path.starts_with(PORTS));
    let nouns: BTreeSet<String> = ports.flat_map(|file| port_nouns(&file.text)).collect();
    let explained = section.to_lowercase();
    for noun in nouns.iter().filter(|noun| !PLAIN_PORTS.contains(&noun.as_str())) {
        if lines_with(&explained, noun).is_empty() {
            let text = format!("the glossary has no word for the port `{noun}`");
            findings.push(Finding::failure(GLOSSARY, text));
        }
    }
    findings
}

/// The last word of each port's name, in lower case and in the singular.
fn port_nouns(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.strip_prefix("pub trait "));
    let noun = |line: &str| {
        let name: &str = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let from = name.rfind(char::is_uppercase).unwrap_or_default();
        let noun = name[from..].to_lowercase();
        noun.strip_suffix("ues").map_or(noun.clone(), |stem| format!("{stem}ue"))
    };
    names.map(noun).collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        check(&[file(path, text)]).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_word_that_hides_who_acts_is_found_in_prose_and_not_in_code() {
        for word in STAND_INS {
            assert_eq!(places("docs/a.md", &format!("first\nof {word}.\n")), ["docs/a.md:2"]);
            assert_eq!(places("a.rs", &format!("let a = 1; // {word}\n")), ["a.rs:1"]);
            assert_eq!(places("a.rs", &format!("let a = \"{word} is\";\n")), ["a.rs:1"]);
        }
        assert_eq!(places("a.rs", &format!("let {} = 1;\n", STAND_INS[0])), [""; 0]);
        assert_eq!(places("Cargo.lock", STAND_INS[0]), [""; 0]);
    }

    fn glossary(rows: &str) -> File {
        let text =
            format!("# A\n\n## Glossary\n\n| term | meaning |\n|---|---|\n{rows}\n## More\n");
        file(GLOSSARY, &text)
    }

    #[test]
    fn a_glossary_is_sorted_and_short() {
        assert_eq!(check(&[glossary("| agent | a |\n| claim | b |\n")]), []);
        assert_eq!(check(&[glossary("| claim | a |\n| agent | b |\n")]).len(), 1);
        let many: Vec<String> = (10..51).map(|number| format!("| t{number} | x |\n")).collect();
        assert_eq!(check(&[glossary(&many.concat())]).len(), 1);
        assert_eq!(check(&[file(GLOSSARY, "# A\n")]).len(), 1);
    }

    #[test]
    fn every_port_has_its_word_in_the_glossary() {
        let ports = file("crates/core/src/ports/a.rs", "//! A.\npub trait Queues: Send {}\n");
        let clock = file("crates/core/src/ports/b.rs", "//! B.\npub trait Clock {}\n");
        let missing = check(&[glossary("| agent | a |\n"), ports, clock]);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].text.contains("`queue`"), "{missing:?}");
        let ports = file("crates/core/src/ports/a.rs", "//! A.\npub trait JobForge {}\n");
        assert_eq!(check(&[glossary("| forge | The port to GitHub. |\n"), ports]), []);
    }
}
