//! Packages of the system, where we may install them: as root, on Debian and its derivatives.
//!
//! Not here: whether a package is needed, and the error if it is still missing (its caller).

use std::process::Command;

use anyhow::Result;

use crate::place::{Place, succeed};
use crate::tools::answers;

/// Installs these packages if we may; otherwise does nothing, and its caller finds them missing.
pub(crate) fn install(place: &Place, packages: &[&str]) -> Result<()> {
    if !is_root() || !answers(Command::new("apt-get").arg("--version")) {
        return Ok(());
    }
    succeed(place.command("apt-get").arg("update"))?;
    succeed(&mut installation(place, packages))
}

fn installation(place: &Place, packages: &[&str]) -> Command {
    let mut install = place.command("apt-get");
    install.args(["install", "-y"]).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    install
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::shown;

    #[test]
    fn the_installation_asks_no_questions() {
        let install = installation(&Place::of_test("/r"), &["python3", "python3-venv"]);
        assert_eq!(shown(&install), "apt-get install -y python3 python3-venv");
        let quiet = install.get_envs().any(|(name, _)| name == "DEBIAN_FRONTEND");
        assert!(quiet);
    }
}
