//! Names that a stranger chose, in all output for people.
//!
//! Not here: every character that is escaped (`bullpen_core::printable`).

use bullpen_github::stand_in::protocol::JobOrder;

use crate::world::{World, order};

/// Clears the screen, returns the carriage, starts a line of its own, has Markdown, and reverses
/// text.
const HOSTILE: &str = "x\u{1b}[2J\u{9b}1m\r\nERROR all machines lost ![p](http://e) \u{202e}txt";
const SHOWN: &str = r"x\u{1b}[2J\u{9b}1m\r\nERROR all machines lost ![p](http://e) \u{202e}txt";

#[track_caller]
fn is_harmless(text: &str) {
    let bad = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!text.contains(bad), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("ERROR all machines")), "{text}");
}

/// A pull request names its jobs, and an operator reads the names in a terminal.
#[tokio::test]
async fn a_hostile_name_is_shown_escaped_to_people_and_as_it_is_to_programs() {
    let world = World::new().await;
    let served = world.serve().await;
    let hostile = JobOrder { name: Some(HOSTILE.to_owned()), ..order("bullpen/pool=bilders", "") };
    let refused = world.github.submit(hostile).id;
    world.settled(refused).await;
    let explained = world.run(&format!("explain {refused}")).await;
    explained.exits(0);
    is_harmless(&explained.data);
    assert!(explained.data.contains(SHOWN), "{}", explained.data);
    let told = world.run(&format!("explain {refused} --json")).await;
    is_harmless(&told.data);
    assert!(told.data.contains(r"\u009b1m"), "{}", told.data);
    assert_eq!(told.json()["name"], HOSTILE, "a program gets the name itself");
    for line in ["status", "pools", "ledger verify"] {
        let ran = world.run(line).await;
        is_harmless(&ran.data);
        is_harmless(&ran.talk);
    }
    is_harmless(&served.process.talk());
    let notices = world.github.notices();
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    is_harmless(&notice.title);
    is_harmless(&notice.text);
    assert!(notice.text.contains(&format!("`{SHOWN}`")), "{}", notice.text);
}
