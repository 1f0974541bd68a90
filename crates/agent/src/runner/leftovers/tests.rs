//! Cleaning, on a machine that is a directory.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use super::*;

/// A machine in a directory whose jobs are this process's own user, and its engine's calls.
struct Yard {
    directory: tempfile::TempDir,
    leftovers: Leftovers,
}

impl Yard {
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

    /// Time passes as files see it: their clock ticks a few hundred times a second.
    fn tick(&self) {
        let (probe, mut writes) = (self.directory.path().join("tick"), 0_u32);
        fs::write(&probe, "").unwrap();
        let before = changed(&fs::metadata(&probe).unwrap());
        while changed(&fs::metadata(&probe).unwrap()) <= before {
            fs::write(&probe, "").unwrap();
            writes += 1;
            assert!(writes < 10_000_000, "the clock of files stands still");
        }
    }

    fn clean(&self) -> io::Result<()> {
        self.leftovers.remove(&self.leftovers.at("/runner"))
    }

    fn docker(&self, script: &str) {
        let path = self.directory.path().join("bin/docker");
        fs::write(&path, format!("#!/bin/bash\necho \"$@\" >>{}\n{script}\n", self.calls()))
            .unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn calls(&self) -> String {
        self.directory.path().join("calls").to_string_lossy().into_owned()
    }
}

#[test]
fn the_home_is_as_the_warm_up_left_it() {
    let yard = Yard::new();
    let kept = yard.write("/home/runner/.cargo/config");
    let changed = yard.write("/home/runner/.profile");
    yard.tick();
    yard.leftovers.note(false).unwrap();
    yard.tick();
    fs::write(&changed, "alias sudo=evil").unwrap();
    let left = yard.write("/home/runner/.aws/credentials");
    let deep = yard.write("/home/runner/.cargo/bin/tool");
    let outside = yard.write("/outside/precious");
    symlink(yard.leftovers.at("/outside"), yard.leftovers.at("/home/runner/link")).unwrap();
    yard.clean().unwrap();
    assert!(kept.exists() && !changed.exists() && !deep.exists());
    assert!(!left.parent().unwrap().exists(), "new and empty directories go");
    assert!(outside.exists() && !yard.leftovers.at("/home/runner/link").is_symlink());
}

#[test]
fn without_a_stamp_nothing_tells_what_is_new() {
    let yard = Yard::new();
    yard.clean().unwrap_err();
}

#[test]
fn what_is_the_users_goes_wherever_anybody_may_write() {
    let yard = Yard::new();
    yard.leftovers.note(false).unwrap();
    let files = [
        "/tmp/a",
        "/var/tmp/deep/er/b",
        "/dev/shm/c",
        "/runner/.env",
        "/var/spool/cron/crontabs/runner",
    ];
    let files = files.map(|path| yard.write(path));
    let other = yard.write("/var/spool/cron/crontabs/root");
    yard.leftovers.stop_what_comes_again().unwrap();
    assert!(!files[4].exists() && other.exists());
    yard.clean().unwrap();
    assert!(files.iter().all(|path| !path.exists()));
}

#[test]
fn what_is_somebody_elses_stays() {
    let yard = Yard::new();
    if yard.leftovers.user.uid != 0 {
        return; // Only root can give a file away.
    }
    yard.leftovers.note(false).unwrap();
    let (theirs, mine) = (yard.write("/tmp/theirs/file"), yard.write("/tmp/theirs/mine"));
    for path in [&theirs, &theirs.parent().unwrap().to_owned()] {
        chown(path, Some(77), None).unwrap();
    }
    yard.clean().unwrap();
    assert!(theirs.exists() && !mine.exists());
}

#[test]
fn containers_networks_and_volumes_go_and_trouble_is_not_hidden() {
    let yard = Yard::new();
    yard.leftovers.note(false).unwrap();
    yard.docker("echo 'is it running?' >&2; exit 1");
    yard.clean().expect("no engine runs");
    fs::remove_file(yard.calls()).unwrap();
    yard.write(containers::SOCKET);
    yard.docker("case $1 in ps) echo c1; echo c2;; volume) [[ $2 == ls ]] && echo v1;; esac; true");
    yard.clean().unwrap();
    let calls = fs::read_to_string(yard.calls()).unwrap();
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
    yard.docker("echo 'permission denied' >&2; exit 1");
    let error = yard.clean().unwrap_err().to_string();
    assert!(error.contains("permission denied") && error.contains("docker ps"), "{error}");
}

/// An engine whose images are lines of a file; one goes by its id or by its name.
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

impl Yard {
    fn with_images(images: &str) -> Self {
        let yard = Self::new();
        yard.write(containers::SOCKET);
        yard.docker(ENGINE);
        yard.images(images);
        yard
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
    let yard = Yard::with_images("sha256:a ubuntu:24.04\nsha256:b <none>:<none>\n");
    yard.leftovers.note(false).unwrap();
    yard.images(
        "sha256:a ubuntu:24.04\nsha256:a acme/deploy:prod\nsha256:b <none>:<none>\n\
         sha256:c acme/build:cache\nsha256:c acme/build:2\nsha256:d <none>:<none>\n",
    );
    yard.clean().unwrap();
    assert_eq!(yard.images_left(), "sha256:a ubuntu:24.04\nsha256:b <none>:<none>\n");
    assert!(fs::read_to_string(yard.calls()).unwrap().contains("builder prune --all --force"));
}

/// A job gives the name of an image that every job uses to one of its own.
#[test]
fn a_name_that_a_job_took_is_not_left_with_its_image() {
    let yard = Yard::with_images("sha256:a ubuntu:24.04\nsha256:b alpine:3\n");
    yard.leftovers.note(false).unwrap();
    yard.images("sha256:a <none>:<none>\nsha256:b ubuntu:24.04\nsha256:e alpine:3\n");
    yard.clean().unwrap();
    assert_eq!(yard.images_left(), "sha256:a <none>:<none>\n", "what is fetched next is genuine");
}

#[test]
fn images_that_cannot_be_removed_or_told_apart_keep_a_machine_from_being_used_again() {
    let yard = Yard::with_images("");
    yard.leftovers.note(false).unwrap();
    yard.docker("[[ $1 != image ]] || echo 'sha256:c acme/build:cache'");
    let error = yard.clean().unwrap_err().to_string();
    assert!(error.contains("keeps images"), "{error}");

    let yard = Yard::with_images("");
    yard.docker("exit 1");
    yard.leftovers.note(false).unwrap();
    yard.docker(ENGINE);
    yard.clean().expect("there are none");
    yard.images("sha256:c acme/build:cache\n");
    let error = yard.clean().unwrap_err().to_string();
    assert!(error.contains("nothing says which images"), "{error}");
}

#[test]
fn a_machine_that_a_job_changed_as_root_is_not_used_again() {
    for evil in ["/etc/cron.d/evil", "/usr/local/bin/git", "/root/.ssh/authorized_keys"] {
        let yard = Yard::new();
        // Somebody else's, so that it is not removed as the user's own.
        yard.write("/etc/passwd");
        yard.write("/usr/local/bin/git");
        let sudo = Leftovers { user: other(&yard.leftovers.user), ..yard.leftovers.clone() };
        yard.tick();
        sudo.note(true).unwrap();
        yard.tick();
        let clean = || sudo.remove(&sudo.at("/runner"));
        clean().expect("nothing was changed");
        yard.write(evil);
        let error = clean().unwrap_err().to_string();
        let directory = Path::new(evil).parent().unwrap().to_string_lossy().into_owned();
        assert!(error.contains("root changed") && error.contains(&directory), "{error}");
    }
}

/// The same one under another number: what this process makes is not its own.
fn other(user: &User) -> User {
    User { uid: user.uid + 1, ..user.clone() }
}

#[test]
fn what_root_left_where_anybody_may_write_goes_if_jobs_may_be_root() {
    for (becomes_root, groups) in [(true, "docker:x:999:runner\n"), (false, "games:x:999:\n")] {
        let yard = Yard::new();
        let user = User { groups: vec![999], ..other(&yard.leftovers.user) };
        let jobs = Leftovers { user, ..yard.leftovers.clone() };
        fs::write(yard.write("/etc/group"), groups).unwrap();
        let before = yard.write("/tmp/of-the-warm-up");
        yard.tick();
        jobs.note(false).unwrap();
        yard.tick();
        let left = yard.write("/var/tmp/deep/left");
        jobs.remove(&jobs.at("/runner")).unwrap();
        assert!(before.exists());
        assert_eq!(left.exists(), !becomes_root, "{groups}");
    }
}

#[test]
fn tools_that_a_job_put_where_anybody_may_go() {
    let yard = Yard::new();
    yard.leftovers.note(false).unwrap();
    let tool = yard.write("/opt/hostedtoolcache/node/20.0.0/x64/bin/node");
    yard.clean().unwrap();
    assert!(!tool.exists());
}

#[test]
fn without_a_note_nothing_is_known_to_be_clean() {
    let yard = Yard::new();
    stamp(&yard.leftovers.stamp).unwrap();
    let error = yard.clean().unwrap_err().to_string();
    assert!(error.contains("nothing says what the warm-up left"), "{error}");
}

#[test]
fn a_note_keeps_parsing() {
    let text = r#"{"v":"1","becomes_root":true,"images":["sha256:a ubuntu:24.04"]}"#;
    let noted: Noted = serde_json::from_str(text).unwrap();
    let images = Some(["sha256:a ubuntu:24.04".to_owned()].into());
    assert_eq!(noted, Noted::V1 { becomes_root: true, images });
    assert_eq!(serde_json::to_string(&noted).unwrap(), text);
}
