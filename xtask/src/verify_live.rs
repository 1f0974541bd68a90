//! `cargo xtask verify-live`: lists and runs the scripts whose checks need a real account.
//!
//! An *entry* is a numbered heading of `docs/unverified.md`. It has a *script* in
//! `scripts/verify-live`, whose header says what it does, needs, touches and costs; the script
//! checks its tools and variables by the same header. The command runs a script only with `--yes`.
//!
//! Not here: the rules that keep entries and scripts together (`rules`), or the scripts.

mod rules;

use std::os::unix::process::CommandExt as _;

use anyhow::{Context as _, Result, bail};

use crate::place::Place;
use crate::tidy::File;

pub(crate) use rules::check;

const DOCUMENT: &str = "docs/unverified.md";
const SCRIPTS: &str = "scripts/verify-live/";

/// A script's header: the comments at its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The entry's number and title, as the document has them.
    entry: String,
    does: String,
    tools: String,
    variables: String,
    optional: String,
    touches: String,
    costs: String,
}

impl Header {
    /// Reads `# Key: value` lines; a line that begins with more spaces continues the line before.
    fn read(text: &str) -> Self {
        let mut header = Self::default();
        let mut last: Option<&mut String> = None;
        for line in text.lines().skip(1).map_while(|line| line.strip_prefix("# ")) {
            if let (Some(more), Some(value)) = (line.strip_prefix("  "), last.as_deref_mut()) {
                value.push(' ');
                value.push_str(more.trim());
                continue;
            }
            let Some((key, value)) = line.split_once(": ") else { break };
            let Some(field) = header.field(key) else { break };
            value.trim().clone_into(field);
            last = Some(field);
        }
        header
    }

    fn field(&mut self, key: &str) -> Option<&mut String> {
        Some(match key {
            "Entry" => &mut self.entry,
            "Does" => &mut self.does,
            "Tools" => &mut self.tools,
            "Variables" => &mut self.variables,
            "Optional" => &mut self.optional,
            "Touches" => &mut self.touches,
            "Costs" => &mut self.costs,
            _ => return None,
        })
    }

    fn number(&self) -> Option<u32> {
        self.entry.split_once(". ")?.0.parse().ok()
    }

    /// The header in the list.
    fn summary(&self) -> String {
        format!(
            "{}\n    needs:   {}\n    touches: {}\n    costs:   {}",
            self.entry,
            self.needs(),
            self.touches,
            self.costs
        )
    }

    fn needs(&self) -> String {
        [&self.tools, &self.variables]
            .into_iter()
            .filter(|words| !words.is_empty())
            .map(|words| words.split(' ').collect::<Vec<_>>().join(", "))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The whole header, which the command prints before it runs the script.
    fn whole(&self) -> String {
        let optional = if self.optional.is_empty() { "nothing" } else { &self.optional };
        let taken = format!("    takes:   {}", optional.replace(' ', ", "));
        format!("{}\n{taken}\n    does:    {}", self.summary(), self.does)
    }
}

/// The entries that the command's arguments choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// Lists all entries in a few lines each.
    List,
    /// Prints one entry, and runs its script if `yes` is set.
    One { number: u32, yes: bool },
}

pub(crate) fn understand(arguments: &[&str]) -> Option<Chosen> {
    let (number, yes) = match arguments {
        [] => return Some(Chosen::List),
        [number] => (number, false),
        [number, "--yes"] | ["--yes", number] => (number, true),
        _ => return None,
    };
    Some(Chosen::One { number: number.parse().ok()?, yes })
}

pub(crate) fn run(place: &Place, chosen: Chosen) -> Result<()> {
    let files = crate::tidy::files(place)?;
    let scripts: Vec<(&str, Header)> = scripts(&files).map(with_header).collect();
    match chosen {
        Chosen::List => {
            for (_, header) in &scripts {
                println!("{}\n", header.summary());
            }
            println!("`cargo xtask verify-live N` says what script N does; with --yes it is run.");
            Ok(())
        }
        Chosen::One { number, yes } => one(place, &scripts, number, yes),
    }
}

fn one(place: &Place, scripts: &[(&str, Header)], number: u32, yes: bool) -> Result<()> {
    let found = scripts.iter().find(|(_, header)| header.number() == Some(number));
    let Some((path, header)) = found else {
        bail!("there is no entry {number}\n\nhint: `cargo xtask verify-live` lists them");
    };
    println!("{}\n    script:  {path}", header.whole());
    if !yes {
        println!("\nNothing was done. `cargo xtask verify-live {number} --yes` runs it.");
        return Ok(());
    }
    println!();
    // Replaces our process, so that an interrupt reaches the script alone, and it cleans up.
    Err(place.command("bash").arg(path).exec()).with_context(|| format!("could not start {path}"))
}

/// The scripts, in the order of their numbers. Deeper directories have their libraries.
fn scripts(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| {
        let name = file.path.strip_prefix(SCRIPTS);
        name.is_some_and(|name| !name.contains('/') && rules::is_shell(name))
    })
}

fn with_header(file: &File) -> (&str, Header) {
    (&file.path, Header::read(&file.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#!/usr/bin/env bash\n\
        # Entry: 2. A title: with a colon\n\
        # Does: This\n\
        #   and that.\n\
        # Tools: aws jq\n\
        # Variables: AWS_REGION\n\
        # Touches: Nothing.\n\
        # Costs: Time.\n\
        set -euo pipefail\n\
        # Does: not this\n";

    #[test]
    fn a_header_is_read_up_to_the_first_command() {
        let header = Header::read(TEXT);
        assert_eq!(header.entry, "2. A title: with a colon");
        assert_eq!(header.number(), Some(2));
        assert_eq!(header.does, "This and that.");
        assert_eq!(header.optional, "");
        let shown = header.whole();
        for part in ["needs:   aws, jq; AWS_REGION", "takes:   nothing", "costs:   Time."] {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn only_complete_arguments_are_accepted() {
        assert_eq!(understand(&[]), Some(Chosen::List));
        assert_eq!(understand(&["3"]), Some(Chosen::One { number: 3, yes: false }));
        assert_eq!(understand(&["3", "--yes"]), Some(Chosen::One { number: 3, yes: true }));
        assert_eq!(understand(&["--yes"]), None);
        assert_eq!(understand(&["3", "4"]), None);
        assert_eq!(understand(&["all"]), None);
    }

    #[test]
    fn an_entry_that_is_not_there_is_not_run() {
        let place = Place::of_test("/nowhere");
        let scripts = [("scripts/verify-live/02-a.sh", Header::read(TEXT))];
        let error = one(&place, &scripts, 3, true).unwrap_err().to_string();
        assert!(error.contains("no entry 3") && error.contains("hint:"), "{error}");
        one(&place, &scripts, 2, false).unwrap();
    }
}
