//! Quotas, by namespace and by user: counted of what living owners hold, under the lock.

use std::process::{Child, Command, Stdio};

use nix::unistd::{Uid, User};

use super::{Host, sliced};
use crate::running::{End, Running, locked, wait_until};
use crate::sandbox::{PROGRAM, Process, is_root, skip};

fn quota(lines: &str) -> String {
    format!("version: v1\ngpu-coord:\n  quotas:\n    {}\n", lines.replace('\n', "\n    "))
}

fn exceeded(whose: &str, requested: u32, used: u32, limited: u32) -> String {
    exceeded_of("nvidia.com/gpu", whose, requested, used, limited)
}

fn exceeded_of(resource: &str, whose: &str, requested: u32, used: u32, limited: u32) -> String {
    format!(
        "exceeded quota of {whose}: requested {resource}={requested}, used {resource}={used}, limited \
         {resource}={limited}; give some back, or have the quota raised"
    )
}

/// All of them have read the devices and wait for the lock when it is released.
#[test]
fn of_twenty_at_once_a_quota_of_three_lets_three() {
    let host = Host::new(64, &quota("team-a: {nvidia.com/gpu: 3}"));
    let host = Host { sandbox: host.sandbox.recorded("") };
    let owners: Vec<Process> = (0..20).map(|_| Process::start()).collect();
    let lock = locked(&host.sandbox.file());
    let ask = |owner: &Process| {
        Running::start(
            host.program(&format!("allocate 1 --namespace team-a --deadline 60 --owner {}", owner.pid())),
        )
    };
    let callers: Vec<Running> = owners.iter().map(ask).collect();
    for caller in &callers {
        wait_until("it waits for the lock", || caller.has_open(&host.sandbox.file()));
    }
    drop(lock);
    let (mut given, mut refused) = (Vec::new(), 0);
    for caller in callers {
        match caller.end() {
            (End::Exit(0), stdout, stderr) => {
                assert_eq!(stderr, "");
                given.push(stdout);
            }
            (end, stdout, stderr) => {
                assert_eq!((end, stdout.as_str()), (End::Exit(6), ""));
                assert_eq!(stderr, format!("gpu-coord: {}\n", exceeded("namespace team-a", 1, 3, 3)));
                refused += 1;
            }
        }
    }
    given.sort();
    assert_eq!((given, refused), (["0\n", "1\n", "2\n"].map(str::to_owned).to_vec(), 17));
    assert_eq!(host.held().len(), 3);
}

#[test]
fn a_namespace_has_its_quota_and_others_have_none() {
    let host = Host::new(8, &quota("team-a: {nvidia.com/gpu: 2}\nteam-b: {gpu: 0}"));
    let first = host.owner_of("1 --namespace team-a", "0\n");
    let two = format!("allocate 2 --namespace team-a --owner {}", first.pid());
    host.refuses(&two, 6, &exceeded("namespace team-a", 2, 1, 2));
    let second = host.owner_of("1 --namespace team-a", "1\n");
    host.refuses("allocate 1 --namespace team-a", 6, &exceeded("namespace team-a", 1, 2, 2));
    host.refuses(
        "1 --enable-coordination-mode --namespace team-a",
        6,
        &exceeded("namespace team-a", 1, 2, 2),
    );
    host.refuses("allocate 1 --namespace team-b", 6, &exceeded("namespace team-b", 1, 0, 0));
    let _other = host.owner_of("3 --namespace team-c", "2,3,4\n");
    let _nobody = host.owner_of("1", "5\n");
    host.release(&second);
    let _third = host.owner_of("1 --namespace team-a", "1\n");
    let exec = host.exec("1 --source simulated:8 --namespace team-a", &["true"]).output().unwrap();
    assert_eq!((exec.status.code(), exec.stdout.len()), (Some(6), 0));
    assert_eq!(
        String::from_utf8(exec.stderr).unwrap(),
        format!("gpu-coord: {}\n", exceeded("namespace team-a", 1, 2, 2))
    );
}

/// Without coordination nothing is held, and nothing is counted.
#[test]
fn what_is_not_recorded_is_not_counted() {
    let host = Host::new(2, &quota("team-a: {nvidia.com/gpu: 1}"));
    host.answers("2 --namespace team-a", "0,1\n");
    host.answers("2 --namespace team-a", "0,1\n");
}

#[test]
fn a_quota_is_of_shares_by_their_name() {
    let shared = sliced(4).replace("resources", "renameByDefault: true, resources");
    let quotas = quota("team-a: {nvidia.com/gpu.shared: 2, nvidia.com/gpu: 0}").replace("version: v1\n", "");
    let host = Host::new(1, &(shared + &quotas));
    let words = "--resource nvidia.com/gpu.shared --namespace team-a";
    let _two = host.owner_of(&format!("2 {words}"), "0\n");
    let problem = exceeded_of("nvidia.com/gpu.shared", "namespace team-a", 1, 2, 2);
    host.refuses(&format!("allocate 1 {words}"), 6, &problem);
    let _other = host.owner_of("1 --resource nvidia.com/gpu.shared --namespace team-b", "0\n");
}

#[test]
fn a_name_that_quotas_mean_otherwise_is_no_namespace() {
    let host = Host::new(1, "version: v1\n");
    for name in ["user:flink", "", &"a".repeat(254)] {
        let problem = format!(
            "--namespace cannot be `{name}`: it takes a name of at most 253 characters, without blanks, that does not \
             begin with `user:`"
        );
        let problem = if name.is_empty() {
            problem.replacen("cannot be ``: it", "needs a value; it", 1)
        } else {
            problem
        };
        host.refuses(&format!("allocate 1 --namespace={name}"), 2, &problem);
    }
}

#[test]
fn the_namespace_is_the_user_where_none_is_said() {
    let uid = Uid::effective();
    let name = User::from_uid(uid).unwrap().map_or_else(|| uid.to_string(), |user| user.name);
    let host = Host::new(4, &quota(&format!("{name}: {{nvidia.com/gpu: 1}}")));
    let _one = host.owner_of("1", "0\n");
    host.refuses("allocate 1", 6, &exceeded(&format!("namespace {name}"), 1, 1, 1));
    host.refuses(
        &format!("allocate 1 --namespace {name}"),
        6,
        &exceeded(&format!("namespace {name}"), 1, 1, 1),
    );
    let _other = host.owner_of("1 --namespace another", "1\n");
}

/// A process of another user, as whom root starts it.
struct OfUser(Child);

impl OfUser {
    fn start(uid: u32) -> OfUser {
        let mut setpriv = Command::new("setpriv");
        setpriv.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
        let child =
            setpriv.args(["sh", "-c", "echo; exec sleep 1000"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut user = OfUser(child);
        // Only then does it run as that user.
        std::io::Read::read_exact(user.0.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        user
    }

    fn line(&self, words: &str) -> String {
        format!("allocate {words} --owner {}", self.0.id())
    }
}

impl Drop for OfUser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whatever namespace it says, and whoever asks for it.
#[test]
fn a_user_has_a_quota_by_name_or_number() {
    const TEST: &str = "a_user_has_a_quota_by_name_or_number";
    if !is_root(TEST) {
        return;
    }
    let Some(nobody) = User::from_name("nobody").unwrap() else {
        return skip(TEST, "there is no user nobody");
    };
    let host = Host::new(
        8,
        &quota(
            "user:nobody: {nvidia.com/gpu: 2}\n\"user:4711\": {nvidia.com/gpu: 1}\nuser:root: {nvidia.com/gpu: 1}",
        ),
    );
    let (one, other) = (OfUser::start(nobody.uid.as_raw()), OfUser::start(nobody.uid.as_raw()));
    host.answers(&one.line("1 --namespace team-a"), "0\n");
    host.answers(&other.line("1"), "1\n");
    host.refuses(&one.line("1 --namespace team-b"), 6, &exceeded("user nobody", 1, 2, 2));
    let without_name = OfUser::start(4711);
    host.refuses(&without_name.line("2"), 6, &exceeded("user 4711", 2, 0, 1));
    host.answers(&without_name.line("1"), "2\n");
    host.refuses(&without_name.line("1 --namespace 4712"), 6, &exceeded("user 4711", 1, 1, 1));
    // The caller's own quota has not been touched.
    let own = host.owner_of("1 --namespace team-c", "3\n");
    host.refuses("allocate 1 --namespace team-d", 6, &exceeded("user root", 1, 1, 1));
    drop(other);
    host.answers(&one.line("1 --check-dead"), "4\n");
    host.release(&own);
    let exec = host.exec("2 --source simulated:8 --user nobody", &["true"]).output().unwrap();
    assert_eq!(exec.status.code(), Some(6));
    assert_eq!(
        String::from_utf8(exec.stderr).unwrap(),
        format!("gpu-coord: {}\n", exceeded("user nobody", 2, 2, 2)),
        "it is of the user that it is about to be"
    );
}

#[test]
fn the_dead_do_not_count() {
    let host = Host::new(4, &quota("team-a: {nvidia.com/gpu: 2}"));
    let gone = host.owner_of("2 --namespace team-a", "0,1\n").kill();
    let _one = host.owner_of("2 --namespace team-a", "2,3\n");
    host.refuses(
        "1 --enable-coordination-mode --namespace team-a",
        6,
        &exceeded("namespace team-a", 1, 2, 2),
    );
    // A refusal has released nothing.
    assert_eq!(host.held().iter().filter(|held| held.pid == gone).count(), 2);
}

/// Whoever may live counts: here a process of the host, of which nothing is known in a container.
#[test]
fn the_doubtful_count() {
    const TEST: &str = "the_doubtful_count";
    if !is_root(TEST) {
        return;
    }
    let host = Host::new(4, &quota("team-a: {nvidia.com/gpu: 2}"));
    let _owner = host.owner_of("1 --namespace team-a", "0\n");
    let mut container = Command::new("unshare");
    container.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir(host.sandbox.path());
    let script = "$PROGRAM allocate $0 --namespace team-a --config config.yaml --coordination-file coordination \
        --source simulated:4; exit $?";
    container.env("PROGRAM", PROGRAM).args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]);
    let output = container.arg("2").output().unwrap();
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        format!("gpu-coord: {}\n", exceeded("namespace team-a", 2, 1, 2))
    );
    assert_eq!((output.status.code(), output.stdout.len()), (Some(6), 0));
}

/// One who held something before there were quotas counts from then on, by the user as whom it was recorded.
#[test]
fn lines_without_a_namespace_count_for_their_user() {
    let uid = Uid::effective();
    let host = Host::new(4, "version: v1\n");
    let before = host.owner_of("2", "0,1\n");
    host.configure(&quota(&format!("\"user:{uid}\": {{nvidia.com/gpu: 2}}")));
    host.refuses("allocate 1", 6, &exceeded(&format!("user {uid}"), 1, 2, 2));
    host.release(&before);
    let _two = host.owner_of("2", "0,1\n");
}
