//! The Unix user that the runner and its jobs run as, on a machine that serves no other purpose.
//!
//! The agent reads users and groups from `/etc`: a static binary cannot use another name service.
//! `setpriv` changes the user and then executes the program, so the process id stays the same. It
//! also joins the user's other groups, which jobs need to reach a container engine.
//!
//! Not here: making the user (the boot script), or removing its files (`leftovers`).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Changes the user and runs a program.
const SETPRIV: &str = "/usr/bin/setpriv";
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// A Unix user that is not root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its id; never root's.
    pub uid: u32,
    /// The id of its primary group.
    pub gid: u32,
    /// The ids of its other groups.
    pub groups: Vec<u32>,
    /// Its home directory.
    pub home: PathBuf,
}

impl User {
    /// Finds the user with this name; refuses root.
    pub fn find(name: &str) -> io::Result<Self> {
        let (users, groups) = (fs::read_to_string(USERS)?, fs::read_to_string(GROUPS)?);
        let found = read(name, &users, &groups).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("there is no user {name}"))
        })?;
        // The agent ends the user's processes and removes its files: root's are the machine itself.
        if found.uid == 0 {
            let text = format!("{name} is root, and jobs must run as another user");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(found)
    }

    /// The command that runs a program as this user.
    pub fn command(&self, program: &Path) -> Command {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let mut command = Command::new(SETPRIV);
        command.arg(format!("--reuid={}", self.uid)).arg(format!("--regid={}", self.gid));
        if groups.is_empty() {
            command.arg("--clear-groups");
        } else {
            command.arg(format!("--groups={}", groups.join(",")));
        }
        command.arg(program);
        command
    }

    /// Gives a directory to this user.
    pub fn own(&self, directory: &Path) -> io::Result<()> {
        chown(directory, Some(self.uid), Some(self.gid))
    }

    /// The variables that tell programs the user's name.
    pub fn variables(&self) -> [(&'static str, &OsStr); 2] {
        [("USER", OsStr::new(&self.name)), ("LOGNAME", OsStr::new(&self.name))]
    }
}

/// Finds the user in the texts of the two files.
fn read(name: &str, users: &str, groups: &str) -> Option<User> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [found, _, uid, gid, _, home, ..] = fields[..] else { return None };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        (found == name).then(|| (uid, gid, PathBuf::from(home)))
    };
    let (uid, gid, home) = users.lines().find_map(line)?;
    let group = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, id, members, ..] = fields[..] else { return None };
        members.split(',').any(|member| member == name).then(|| id.parse().ok()).flatten()
    };
    let groups = groups.lines().filter_map(group).collect();
    Some(User { name: name.to_owned(), uid, gid, groups, home })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\nbad line\n\
         runner:x:1001:1002:,,,:/home/runner:/bin/bash\n";
    const GROUPS: &str = "root:x:0:\ndocker:x:999:admin,runner\nadm:x:4:runner2\nrunner:x:1002:\n";

    #[test]
    fn a_user_is_read_with_its_groups() {
        let runner = read("runner", USERS, GROUPS).unwrap();
        let expected = User {
            name: "runner".into(),
            uid: 1001,
            gid: 1002,
            groups: vec![999],
            home: "/home/runner".into(),
        };
        assert_eq!(runner, expected);
        assert_eq!(read("runn", USERS, GROUPS), None);
        assert!(read("root", USERS, GROUPS).unwrap().groups.is_empty());
    }

    #[test]
    fn jobs_are_never_root() {
        User::find("root").unwrap_err();
    }

    #[test]
    fn groups_are_joined_and_no_others_are_kept() {
        let runner = read("runner", USERS, GROUPS).unwrap();
        let words = |user: &User| {
            let command = user.command(Path::new("/bin/true"));
            let words: Vec<String> =
                command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            words.join(" ")
        };
        assert_eq!(words(&runner), "--reuid=1001 --regid=1002 --groups=999 /bin/true");
        let alone = User { groups: Vec::new(), ..runner };
        assert_eq!(words(&alone), "--reuid=1001 --regid=1002 --clear-groups /bin/true");
    }
}
