//! Tests of cleaning, on a directory that stands for a machine.

use std::os::unix::fs::{chown, symlink};

use super::*;
use crate::test_program;

/// A directory that stands for a machine; its jobs run as this process's own user.
struct TestMachine {
    directory: tempfile::TempDir,
    leftovers: Leftovers,
}

impl TestMachine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        let uid = fs::metadata(directory.path()).unwrap().uid();
        let user = User {
            name: "runner".into(),
            uid,
            gid: uid,
            groups: Vec::new(),
            home: "/home/runner".into(),
        };
        let path = directory.path().join("bin").to_string_lossy().into_owned();
        let stamp = directory.path().join("home.stamp");
        for name in SHARED.iter().chain(PER_USER).chain(&["/home/runner/.config", "/outside"]) {
            fs::create_dir_all(root.join(&name[1..])).unwrap();
        }
        fs::create_dir(&path).unwrap();
        Self { directory, leftovers: Leftovers { user, root, path, stamp } }
    }

    fn write(&self, path: &str) -> PathBuf {
        let path = self.leftovers.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
        path
    }

    /// Waits for a tick of the file system's clock, which ticks a few hundred times a second.
    fn tick(&self) {
        let (probe, mut writes) = (self.directory.path().join("tick"), 0_u32);
        fs::write(&probe, "").unwrap();
        let before = changed(&fs::metadata(&probe).unwrap());
        while changed(&fs::metadata(&probe).unwrap()) <= before {
            fs::write(&probe, "").unwrap();
            writes += 1;
            assert!(writes < 10_000_000, "the file system's clock stands still");
        }
    }

    fn clean(&self) -> io::Result<()> {
        self.leftovers.remove(&self.leftovers.at("/runner"))
    }

    fn docker(&self, script: &str) {
        let script = format!("#!/bin/bash\necho \"$@\" >>{}\n{script}\n", self.calls());
        test_program::install(&self.directory.path().join("bin/docker"), &script);
    }

    fn calls(&self) -> String {
        self.directory.path().join("calls").to_string_lossy().into_owned()
    }
}

#[test]
fn the_home_is_as_the_warm_up_left_it() {
    let machine = TestMachine::new();
    let kept = machine.write("/home/runner/.cargo/config");
    let changed = machine.write("/home/runner/.profile");
    machine.tick();
    machine.leftovers.note(false).unwrap();
    machine.tick();
    fs::write(&changed, "alias sudo=evil").unwrap();
    let left = machine.write("/home/runner/.aws/credentials");
    let deep = machine.write("/home/runner/.cargo/bin/tool");
    let outside = machine.write("/outside/precious");
    symlink(machine.leftovers.at("/outside"), machine.leftovers.at("/home/runner/link")).unwrap();
    machine.clean().unwrap();
    assert!(kept.exists() && !changed.exists() && !deep.exists());
    assert!(!left.parent().unwrap().exists(), "new and empty directories go");
    assert!(outside.exists() && !machine.leftovers.at("/home/runner/link").is_symlink());
}

#[test]
fn without_a_stamp_nothing_tells_what_is_new() {
    let machine = TestMachine::new();
    machine.clean().unwrap_err();
}

#[test]
fn the_users_files_go_from_every_shared_directory() {
    let machine = TestMachine::new();
    machine.leftovers.note(false).unwrap();
    let files = [
        "/tmp/a",
        "/var/tmp/deep/er/b",
        "/dev/shm/c",
        "/runner/.env",
        "/var/spool/cron/crontabs/runner",
    ];
    let files = files.map(|path| machine.write(path));
    let other = machine.write("/var/spool/cron/crontabs/root");
    machine.leftovers.stop_what_comes_again().unwrap();
    assert!(!files[4].exists() && other.exists());
    machine.clean().unwrap();
    assert!(files.iter().all(|path| !path.exists()));
}

#[test]
fn files_of_other_users_stay() {
    let machine = TestMachine::new();
    if machine.leftovers.user.uid != 0 {
        return; // Only root can give a file away.
    }
    machine.leftovers.note(false).unwrap();
    let (theirs, mine) = (machine.write("/tmp/theirs/file"), machine.write("/tmp/theirs/mine"));
    for path in [&theirs, &theirs.parent().unwrap().to_owned()] {
        chown(path, Some(77), None).unwrap();
    }
    machine.clean().unwrap();
    assert!(theirs.exists() && !mine.exists());
}

#[test]
fn containers_networks_and_volumes_go_and_trouble_is_not_hidden() {
    let machine = TestMachine::new();
    machine.leftovers.note(false).unwrap();
    machine.docker("echo 'is it running?' >&2; exit 1");
    machine.clean().expect("no engine runs");
    fs::remove_file(machine.calls()).unwrap();
    machine.write(containers::SOCKET);
    machine
        .docker("case $1 in ps) echo c1; echo c2;; volume) [[ $2 == ls ]] && echo v1;; esac; true");
    machine.clean().unwrap();
    let calls = fs::read_to_string(machine.calls()).unwrap();
    assert_eq!(
        calls.lines().collect::<Vec<_>>(),
        [
            "ps --all --quiet",
            "rm --force --volumes c1 c2",
            "network ls --quiet --filter type=custom",
            "volume ls --quiet",
            "volume rm --force v1",
            "builder prune --all --force",
            "image ls --all --no-trunc --format {{.ID}} {{.Repository}}:{{.Tag}}",
        ]
    );
    machine.docker("echo 'permission denied' >&2; exit 1");
    let error = machine.clean().unwrap_err().to_string();
    assert!(error.contains("permission denied") && error.contains("docker ps"), "{error}");
}

/// An engine whose images are lines of a file; it removes an image by its id or its name.
const ENGINE: &str = r#"images=${0%/*}/images
case "$1 $2" in
"image ls") while read -r line; do echo "$line"; done <"$images";;
"image rm") shift 3
  kept=()
  while read -r id name; do
    [[ " $* " == *" $id "* || " $* " == *" $name "* ]] || kept+=("$id $name")
  done <"$images"
  printf '%s\n' "${kept[@]}" >"$images";;
esac"#;

impl TestMachine {
    fn with_images(images: &str) -> Self {
        let machine = Self::new();
        machine.write(containers::SOCKET);
        machine.docker(ENGINE);
        machine.images(images);
        machine
    }

    fn images(&self, images: &str) {
        fs::write(self.directory.path().join("bin/images"), images).unwrap();
    }

    fn images_left(&self) -> String {
        fs::read_to_string(self.directory.path().join("bin/images")).unwrap()
    }
}

#[test]
fn images_of_a_job_go_and_those_of_the_warm_up_stay() {
    let machine = TestMachine::with_images("sha256:a ubuntu:24.04\nsha256:b <none>:<none>\n");
    machine.leftovers.note(false).unwrap();
    machine.images(
        "sha256:a ubuntu:24.04\nsha256:a acme/deploy:prod\nsha256:b <none>:<none>\n\
         sha256:c acme/build:cache\nsha256:c acme/build:2\nsha256:d <none>:<none>\n",
    );
    machine.clean().unwrap();
    assert_eq!(machine.images_left(), "sha256:a ubuntu:24.04\nsha256:b <none>:<none>\n");
    assert!(fs::read_to_string(machine.calls()).unwrap().contains("builder prune --all --force"));
}

/// A job gives the name of an image that every job uses to its own image.
#[test]
fn a_name_that_a_job_took_is_not_left_with_its_image() {
    let machine = TestMachine::with_images("sha256:a ubuntu:24.04\nsha256:b alpine:3\n");
    machine.leftovers.note(false).unwrap();
    machine.images("sha256:a <none>:<none>\nsha256:b ubuntu:24.04\nsha256:e alpine:3\n");
    machine.clean().unwrap();
    assert_eq!(
        machine.images_left(),
        "sha256:a <none>:<none>\n",
        "the next job fetches the genuine image"
    );
}

#[test]
fn images_that_cannot_be_removed_or_told_apart_keep_a_machine_from_being_used_again() {
    let machine = TestMachine::with_images("");
    machine.leftovers.note(false).unwrap();
    machine.docker("[[ $1 != image ]] || echo 'sha256:c acme/build:cache'");
    let error = machine.clean().unwrap_err().to_string();
    assert!(error.contains("keeps images"), "{error}");

    let machine = TestMachine::with_images("");
    machine.docker("exit 1");
    machine.leftovers.note(false).unwrap();
    machine.docker(ENGINE);
    machine.clean().expect("there are none");
    machine.images("sha256:c acme/build:cache\n");
    let error = machine.clean().unwrap_err().to_string();
    assert!(error.contains("images after the warm-up are unknown"), "{error}");
}

#[test]
fn a_machine_that_a_job_changed_as_root_is_not_used_again() {
    for evil in ["/etc/cron.d/evil", "/usr/local/bin/git", "/root/.ssh/authorized_keys"] {
        let machine = TestMachine::new();
        // The files' owner is not the jobs' user, so cleaning does not remove them as the user's.
        machine.write("/etc/passwd");
        machine.write("/usr/local/bin/git");
        let sudo = Leftovers { user: other(&machine.leftovers.user), ..machine.leftovers.clone() };
        machine.tick();
        sudo.note(true).unwrap();
        machine.tick();
        let clean = || sudo.remove(&sudo.at("/runner"));
        clean().expect("nothing was changed");
        machine.write(evil);
        let error = clean().unwrap_err().to_string();
        let directory = Path::new(evil).parent().unwrap().to_string_lossy().into_owned();
        assert!(error.contains("root changed") && error.contains(&directory), "{error}");
    }
}

/// The user with another id, so that files of this process are not the user's.
fn other(user: &User) -> User {
    User { uid: user.uid + 1, ..user.clone() }
}

#[test]
fn files_of_root_in_shared_directories_go_if_jobs_may_be_root() {
    for (becomes_root, groups) in [(true, "docker:x:999:runner\n"), (false, "games:x:999:\n")] {
        let machine = TestMachine::new();
        let user = User { groups: vec![999], ..other(&machine.leftovers.user) };
        let jobs = Leftovers { user, ..machine.leftovers.clone() };
        fs::write(machine.write("/etc/group"), groups).unwrap();
        let before = machine.write("/tmp/of-the-warm-up");
        machine.tick();
        jobs.note(false).unwrap();
        machine.tick();
        let left = machine.write("/var/tmp/deep/left");
        jobs.remove(&jobs.at("/runner")).unwrap();
        assert!(before.exists());
        assert_eq!(left.exists(), !becomes_root, "{groups}");
    }
}

#[test]
fn tools_that_a_job_added_to_a_shared_directory_go() {
    let machine = TestMachine::new();
    machine.leftovers.note(false).unwrap();
    let tool = machine.write("/opt/hostedtoolcache/node/20.0.0/x64/bin/node");
    machine.clean().unwrap();
    assert!(!tool.exists());
}

#[test]
fn without_a_note_nothing_is_known_to_be_clean() {
    let machine = TestMachine::new();
    stamp(&machine.leftovers.stamp).unwrap();
    let error = machine.clean().unwrap_err().to_string();
    assert!(error.contains("state after the warm-up is unknown"), "{error}");
}

#[test]
fn a_note_keeps_parsing() {
    let text = r#"{"v":"1","becomes_root":true,"images":["sha256:a ubuntu:24.04"]}"#;
    let noted: Noted = serde_json::from_str(text).unwrap();
    let images = Some(["sha256:a ubuntu:24.04".to_owned()].into());
    assert_eq!(noted, Noted::V1 { becomes_root: true, images });
    assert_eq!(serde_json::to_string(&noted).unwrap(), text);
}
