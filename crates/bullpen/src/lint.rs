//! `bullpen lint`: finds the configuration, checks it, and prints the findings.
//!
//! It ignores the environment, which may override parts of `bullpen.toml`, so that the findings are
//! the same on every machine. With both files it checks pools against the ceilings of their stack.
//!
//! Not here: the rules (`bullpen_core::config`), or the output formats (`report`).

mod report;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bullpen_core::config::{self, Finding, Stack, runs_on, stack};
use bullpen_core::severity::Severity;

use crate::exit::Exit;
use crate::inputs::files;
use crate::render;

/// The names of configuration files, for each directory.
const PLACES: &[&str] = &[
    ".github/runs-on.yml",
    ".github/runs-on.yaml",
    ".github-private/.github/runs-on.yml",
    "runs-on.yml",
    "runs-on.yaml",
    "bullpen.toml",
];
/// The mark of the last directory of the search.
const ROOT: &str = ".git";
/// The path in findings about a text from standard input.
const STDIN: &str = "<stdin>";

/// The files to check, and the output format.
#[derive(Debug, clap::Args)]
pub(crate) struct LintArgs {
    /// The files [default: all files found from here up to the root of the repository]
    #[arg(value_name = "FILE", conflicts_with = "stdin")]
    files: Vec<PathBuf>,
    /// Check the runs-on.yml given on standard input
    #[arg(long)]
    stdin: bool,
    /// The format of the findings
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Format {
    /// Lines of PATH:LINE:COLUMN: SEVERITY: MESSAGE
    #[default]
    Text,
    /// One JSON object
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// The kind of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    RunsOn,
    Stack,
}

impl Kind {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "yml" | "yaml" => Some(Self::RunsOn),
            "toml" => Some(Self::Stack),
            _ => None,
        }
    }

    const fn bytes_max(self) -> usize {
        match self {
            Self::RunsOn => config::RUNS_ON_BYTES_MAX,
            Self::Stack => config::STACK_BYTES_MAX,
        }
    }
}

/// A file's contents.
struct Text {
    path: String,
    kind: Kind,
    bytes: Vec<u8>,
}

impl Text {
    /// The parsed `bullpen.toml`, if it is one and has no errors.
    fn stack(&self) -> Option<Stack> {
        match self.kind {
            Kind::RunsOn => None,
            Kind::Stack => stack::read(&self.bytes, &BTreeMap::new()).into_parts().0,
        }
    }

    fn checked(self, stacks: &[Stack]) -> Checked {
        let findings = match self.kind {
            Kind::RunsOn => runs_on::read_beside(&self.bytes, stacks).into_parts().1,
            Kind::Stack => stack::read(&self.bytes, &BTreeMap::new()).into_parts().1,
        };
        Checked { path: self.path, findings }
    }
}

/// One file and its findings.
#[derive(Debug)]
struct Checked {
    path: String,
    findings: Vec<Finding>,
}

/// Why the command could check nothing, with advice.
struct Unusable {
    what: String,
    hint: &'static str,
}

/// Runs `bullpen lint`.
pub(crate) fn run(args: &LintArgs) -> Exit {
    let checked = match check(args) {
        Ok(checked) => checked,
        Err(Unusable { what, hint }) => {
            render::error(&what, Some(hint));
            return Exit::Usage;
        }
    };
    match args.format {
        Format::Text => {
            for line in report::text(&checked) {
                render::data(&line);
            }
        }
        Format::Json => render::json(&report::json(&checked).to_string()),
        Format::Sarif => render::json(&report::sarif(&checked).to_string()),
    }
    render::talk(&report::summary(&checked));
    let fails = |finding: &Finding| match finding.severity {
        Severity::Error => true,
        Severity::Warning => args.strict,
        Severity::Note => false,
    };
    let failed = checked.iter().flat_map(|file| &file.findings).any(fails);
    if failed { Exit::Failed } else { Exit::Done }
}

fn check(args: &LintArgs) -> Result<Vec<Checked>, Unusable> {
    if args.stdin {
        let kind = Kind::RunsOn;
        let bytes = read(std::io::stdin().lock(), kind, STDIN)?;
        return Ok(vec![Text { path: STDIN.to_owned(), kind, bytes }.checked(&[])]);
    }
    let files = if args.files.is_empty() { discover()? } else { args.files.clone() };
    let texts: Vec<Text> = files.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
    let stacks: Vec<Stack> = texts.iter().filter_map(Text::stack).collect();
    Ok(texts.into_iter().map(|text| text.checked(&stacks)).collect())
}

fn open(path: &Path) -> Result<Text, Unusable> {
    let shown = path.display().to_string();
    let Some(kind) = Kind::of(path) else {
        return Err(Unusable {
            what: format!("{shown} is neither YAML nor TOML by its name"),
            hint: "name a file that ends in .yml, .yaml or .toml, or use --stdin",
        });
    };
    let bytes = files::text(path, kind.bytes_max()).map_err(|error| Unusable {
        what: error.to_string(),
        hint: "without a FILE, `bullpen lint` looks for .github/runs-on.yml and bullpen.toml itself",
    })?;
    Ok(Text { path: shown, kind, bytes })
}

/// Reads at most one byte more than the limit, so that the parser notices a file that is too long.
fn read(source: impl std::io::Read, kind: Kind, shown: &str) -> Result<Vec<u8>, Unusable> {
    let mut bytes = Vec::new();
    let most = u64::try_from(kind.bytes_max()).unwrap_or(u64::MAX).saturating_add(1);
    source.take(most).read_to_end(&mut bytes).map_err(|error| Unusable {
        what: format!("could not read {shown}: {error}"),
        hint: "name a file, not a directory, that you may read",
    })?;
    Ok(bytes)
}

/// Finds the files in this directory and its parents, up to the repository's root; outside of a
/// repository in this directory only.
fn discover() -> Result<Vec<PathBuf>, Unusable> {
    let here = std::env::current_dir().map_err(|error| Unusable {
        what: format!("could not find the current directory: {error}"),
        hint: "name the files",
    })?;
    let to_root = here.ancestors().position(|directory| directory.join(ROOT).exists());
    let mut files = Vec::new();
    let mut up = PathBuf::new();
    for _ in 0..=to_root.unwrap_or(0) {
        let places = PLACES.iter().map(|place| up.join(place));
        files.extend(places.filter(|path| path.is_file()));
        up.push("..");
    }
    if files.is_empty() {
        return Err(Unusable {
            what: format!("there is no runs-on.yml and no bullpen.toml in {}", here.display()),
            hint: "name a FILE, or use --stdin; looked for .github/runs-on.yml, runs-on.yml, \
                   .github-private/.github/runs-on.yml and bullpen.toml up to the repository's root",
        });
    }
    Ok(files)
}
