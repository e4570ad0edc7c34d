//! The hierarchy v1, where a group takes its rules from the one above, and that one can change its own.

use super::cell::Version;
use super::stage::{MAJOR, Stage};

fn stage(test: &str) -> Option<Stage> {
    Version::V1.may_be_used(test).then(|| Stage::with_gpus(Version::V1, 3))
}

/// What `systemctl daemon-reload` writes for a unit with a device policy, and before all else.
#[test]
fn what_is_written_to_the_group_above_frees_nobody() {
    let Some(stage) = stage("what_is_written_to_the_group_above_frees_nobody") else { return };
    let mut owner = stage.owner();
    stage.confine(1, &owner, "0\n");
    let invalid = |name: &str| {
        let error = stage.cell.write(name, "a").unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(libc::EINVAL),
            "the kernel refuses it while there are groups below"
        );
        assert_eq!(owner.reach(), "+--");
    };
    ["devices.allow", "devices.deny"].into_iter().for_each(invalid);
    let number = |at: u64| format!("c {MAJOR}:{} rwm", stage.first_minor + at);
    stage.cell.write("devices.allow", &number(1)).unwrap();
    assert_eq!(owner.reach(), "+--", "what the group above allows is allowed to nobody below");
    stage.cell.write("devices.deny", &number(0)).unwrap();
    assert_eq!(owner.reach(), "---");
    stage.cell.write("devices.allow", &number(0)).unwrap();
    assert_eq!(owner.reach(), "---", "denied for good to who is below");
    stage.release(&owner);
    stage.assert_free(&mut owner);
}

#[test]
fn below_a_list_of_what_is_allowed_the_others_are_taken_out() {
    let number = |minor: u64| format!("c {MAJOR}:{minor} rw");
    let lists: [&dyn Fn(u64) -> Vec<String>; 4] = [
        &|_| vec![format!("c {MAJOR}:* rwm")],
        &|_| vec![format!("c {MAJOR}:* rw")],
        &|first| (first..first + 3).map(number).collect(),
        &|first| vec![format!("c {MAJOR}:* rw"), number(first), format!("c {MAJOR}:{} rwm", first + 1)],
    ];
    for list in lists {
        let Some(stage) = stage("below_a_list_of_what_is_allowed_the_others_are_taken_out") else { return };
        let list = list(stage.first_minor);
        stage.cell.allow_only(&list);
        let (mut one, mut other) = (stage.owner(), stage.owner());
        assert_eq!(one.reach(), "+++", "{list:?}");
        stage.confine(1, &one, "0\n");
        stage.confine(1, &other, "0\n");
        assert_eq!((one.reach(), other.reach()), ("+--".to_owned(), "-+-".to_owned()), "{list:?}");
        // What is granted after it was denied.
        stage.sandbox.answers(&format!("{} --print host-index", stage.line(1, &one)), "2\n");
        assert_eq!((one.reach(), other.reach()), ("+-+".to_owned(), "-+-".to_owned()), "{list:?}");
        stage.release(&one);
        stage.release(&other);
        stage.assert_free(&mut one);
        stage.assert_free(&mut other);
    }
}

/// The owner could not use it, and is told so before anything is recorded.
#[test]
fn what_the_list_above_has_not_is_not_given() {
    let Some(stage) = stage("what_the_list_above_has_not_is_not_given") else { return };
    stage.cell.allow_only(&[format!("c {MAJOR}:{} rwm", stage.first_minor + 1)]);
    let mut owner = stage.owner();
    let problem = format!(
        "cannot write `c {MAJOR}:{} rw` to {}/devices.allow: this requires CAP_SYS_ADMIN, and nothing can \
         be allowed that the group above denies; nothing was changed",
        stage.first_minor,
        stage.group(&owner).display()
    );
    stage.refuses(&stage.line(1, &owner), 5, &problem);
    assert_eq!((owner.reach(), stage.cell.children()), ("-+-".to_owned(), Vec::new()));
    stage.sandbox.answers(&format!("{} --devices 1", stage.line(1, &owner)), "0\n");
    assert_eq!(owner.reach(), "-+-");
}

/// What every process needs stays as it was.
#[test]
fn nothing_else_is_denied() {
    let Some(stage) = stage("nothing_else_is_denied") else { return };
    let mut owner = stage.owner();
    stage.cell.allow_only(&[format!("c {MAJOR}:* rwm")]);
    stage.confine(1, &owner, "0\n");
    let opened =
        owner.tell("for node in null zero full random; do { true 9<>/dev/$node && echo opened; } 2>&1; done");
    assert_eq!(super::owner::signs(&opened), "++++");
    let other = (stage.first_minor + 128) % 256;
    let made = owner.tell(&format!("mknod other c {MAJOR} {other} && NODES=other reach 2>&1; rm other"));
    assert_eq!(super::owner::signs(&made), "+", "a minor of the major that is no device of the host");
}
