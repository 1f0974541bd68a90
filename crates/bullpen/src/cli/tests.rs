//! Tests that the parser accepts every command line that the documents show.
//!
//! Not here: running them, or what their output looks like.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use super::Cli;

/// The words before the arguments of a command line.
const PROGRAMS: [&str; 3] =
    ["bullpen", "cargo run -p bullpen --", "cargo run --profile sim -p bullpen --"];
/// What follows `bullpen` where cargo's package is meant: `bullpen --test service` names a test.
const OF_CARGO: [&str; 3] = ["--test", "--bin", "--features"];
/// The commands that only a build with AWS has.
const OF_AWS: [&str; 1] = ["policies"];

/// How a document shows a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// On a line of a block: a reader may run it as it is.
    Block,
    /// In a sentence: it may be a command's name alone, without the arguments that it needs.
    Sentence,
}

/// The README, and every page of `docs`.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = fs::read_dir(root.join("docs")).expect("docs");
    let pages = pages.map(|page| page.expect("a page").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let mut paths: Vec<PathBuf> = pages.collect();
    let others = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"];
    paths.extend(others.map(|name| root.join(name)));
    paths.sort();
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(path).expect("a document"));
    paths.into_iter().map(read).collect()
}

/// The command lines of a document, without the program.
fn command_lines(document: &str) -> Vec<(Shown, String)> {
    let mut found = Vec::new();
    let mut sentences = String::new();
    let mut is_block = false;
    for line in document.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            found.extend(arguments(line.strip_prefix("$ ").unwrap_or(line), Shown::Block));
        } else {
            sentences.push_str(line);
            sentences.push(' ');
        }
    }
    let spans = sentences.split('`').skip(1).step_by(2);
    found.extend(spans.filter_map(|span| arguments(span, Shown::Sentence)));
    found
}

/// The arguments of a command line of ours.
fn arguments(line: &str, shown: Shown) -> Option<(Shown, String)> {
    let rest = PROGRAMS.iter().find_map(|program| line.strip_prefix(program))?;
    let first = rest.strip_prefix(' ')?.split(' ').next()?;
    (!OF_CARGO.contains(&first)).then(|| (shown, rest.trim().to_owned()))
}

/// The words of a command line: as a shell splits it, without what is said of it.
fn words(line: &str) -> Vec<String> {
    // What is said of a command follows it after two spaces; an option may be aligned so too.
    let (command, said) = line.split_once("  ").unwrap_or((line, ""));
    let said = said.trim_start();
    let line =
        if said.starts_with("--") { format!("{command} {said}") } else { command.to_owned() };
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for c in line.chars().chain([' ']) {
        match c {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    let ends = [">", "|", "&&", "\\"];
    let words = words.into_iter().take_while(|word| !ends.contains(&word.as_str()));
    words.filter(|word| !word.is_empty()).map(|word| example(&word)).collect()
}

/// A word without the brackets of an optional one. A placeholder stands for itself, unless the parser
/// reads its value.
fn example(word: &str) -> String {
    let word = word.trim_matches(['[', ']']);
    let word = word.strip_suffix("...").unwrap_or(word);
    let word = word.split('|').next().unwrap_or(word);
    let word = match word {
        "N" => "1",
        "A..B" => "0..1",
        "INSTANT" => "2026-05-31T12:20:00Z",
        "RULE" => "drain-then-stop",
        other => other,
    };
    word.to_owned()
}

/// What the parser says against a command line.
fn objection(shown: Shown, line: &str) -> Option<String> {
    let words = words(line);
    if cfg!(not(feature = "aws")) && words.iter().any(|word| OF_AWS.contains(&word.as_str())) {
        return None;
    }
    let is_name = words.iter().all(|word| !word.starts_with('-'));
    let error = Cli::try_parse_from([&["bullpen".to_owned()], &words[..]].concat()).err()?;
    match error.kind() {
        ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand
            if shown == Shown::Sentence && is_name =>
        {
            None
        }
        _ => Some(error.to_string()),
    }
}

#[test]
fn the_parser_accepts_every_command_line_of_the_documents() {
    let mut objections = Vec::new();
    for (path, text) in documents() {
        let lines = command_lines(&text);
        if path.ends_with("README.md") {
            let blocks = lines.iter().filter(|(shown, _)| *shown == Shown::Block).count();
            assert!(blocks >= 17, "the README has {blocks} command lines");
        }
        for (shown, line) in lines {
            if let Some(error) = objection(shown, &line) {
                objections.push(format!("{}: bullpen {line}\n{error}", path.display()));
            }
        }
    }
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

#[test]
fn a_command_line_is_found_wherever_a_document_shows_it() {
    let page = "Call `bullpen\nstatus`, or see `bullpen --test service`, `bullpen-path`.\n\
                ```text\n$ bullpen pools plan   what follows\ncargo run -p bullpen -- demo\n```\n\
                `bullpen explain JOB` and `status`.\n";
    let found = command_lines(page);
    let expected = [
        (Shown::Block, "pools plan   what follows"),
        (Shown::Block, "demo"),
        (Shown::Sentence, "status"),
        (Shown::Sentence, "explain JOB"),
    ];
    assert_eq!(found, expected.map(|(shown, line)| (shown, line.to_owned())));
}

#[test]
fn a_wrong_command_line_is_refused() {
    let refused = [
        (Shown::Block, "explain"),
        (Shown::Block, "statsu"),
        (Shown::Sentence, "statsu"),
        (Shown::Sentence, "status --colour"),
        (Shown::Sentence, "sim run --seeds many"),
    ];
    for (shown, line) in refused {
        assert!(objection(shown, line).is_some(), "bullpen {line}");
    }
    let accepted = [
        (Shown::Sentence, "explain"),
        (Shown::Block, "status                  machines, and who has them"),
        (Shown::Block, "labels parse \"runs-on/cpu=4+8 and more\"    what it asks for"),
        (Shown::Block, "serve    --config FILE > log"),
        (Shown::Block, "sim explore [--tier hot|stopped] [--claimers N]"),
    ];
    for (shown, line) in accepted {
        assert_eq!(objection(shown, line), None, "bullpen {line}");
    }
}
