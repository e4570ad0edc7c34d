//! MIG instances under each strategy, by NVML and by nvidia-smi.

use std::fs;

use serde_json::Value;

use crate::fake_nvml::{Answer, Host};
use crate::inventory::{details, listing, with_mig};
use crate::sandbox::Process;

fn instance(card: u32, place: u32) -> String {
    format!("MIG-fa4e0000-0000-4000-8000-{card:06x}{place:06x}")
}

/// Two cards; the second is divided.
fn half_divided() -> Host {
    Host::new().with("GPUS", "2").with("MIG", "1:2")
}

fn run(host: &Host, config: &str, line: &str) -> (Option<i32>, String, String) {
    fs::write(host.path("config.yaml"), config).unwrap();
    let line = format!("{line} --source nvml --config config.yaml");
    let Answer { status, stdout, stderr } = host.run(&line);
    (status, stdout, stderr)
}

fn strategy(name: &str) -> String {
    format!("version: v1\nflags: {{migStrategy: {name}}}\n")
}

fn warning(count: u32) -> String {
    format!(
        "gpu-coord: warning: {count} MIG instances for one owner, but CUDA uses only one of them: ask for 1, or for a larger \
         profile\n"
    )
}

fn refused(status: i32, problem: &str) -> (Option<i32>, String, String) {
    (Some(status), String::new(), format!("gpu-coord: {problem}\n"))
}

fn given(answer: &str) -> (Option<i32>, String, String) {
    (Some(0), format!("{answer}\n"), String::new())
}

#[test]
#[rustfmt::skip] // a table
fn instances_are_offered_as_the_strategy_says() {
    let both = format!("{},{}", instance(1, 0), instance(1, 2));
    let none = |name: &str, has: &str| refused(2, &format!("this host has no resource `{name}`; it has {has}: name one with --resource"));
    let too_many = |amount: &str, there_are: u32| refused(1, &format!("{amount} asked for, and there are {there_are}: waiting cannot help; ask for fewer"));
    let warned = |answer: String| (Some(0), answer + "\n", warning(2));
    let profile = "--resource nvidia.com/mig-1g.5gb";
    for (config, line, answer) in [
        ("version: v1\n".to_owned(), "1".to_owned(),                given("0")),
        ("version: v1\n".to_owned(), "2".to_owned(),                given(&format!("0,{}", instance(1, 0)))),
        ("version: v1\n".to_owned(), "3".to_owned(),                warned(format!("0,{both}"))),
        ("version: v1\n".to_owned(), format!("1 {profile}"),        given(&instance(1, 0))),
        (strategy("none"),           "1".to_owned(),                given("0")),
        (strategy("none"),           "2".to_owned(),                too_many("2 units", 1)),
        (strategy("none"),           format!("1 {profile}"),        none("nvidia.com/mig-1g.5gb", "nvidia.com/gpu (1)")),
        (strategy("mixed"),          "1".to_owned(),                given("0")),
        (strategy("mixed"),          "2".to_owned(),                too_many("2 units", 1)),
        (strategy("mixed"),          format!("1 {profile}"),        given(&instance(1, 0))),
        (strategy("mixed"),          format!("2 {profile}"),        warned(both.clone())),
        (strategy("mixed"),          format!("3 {profile}"),        too_many("3 units", 2)),
        (strategy("mixed"),          "1 --resource nvidia.com/mig-2g.10gb".to_owned(), none("nvidia.com/mig-2g.10gb", "nvidia.com/gpu (1), nvidia.com/mig-1g.5gb (2)")),
        (strategy("single"),         "1".to_owned(),                refused(4, "migStrategy single needs instances that are all alike, and there are 1g.5gb on device 1; no MIG on device 0; use mixed")),
    ] {
        assert_eq!(run(&half_divided(), &config, &line), answer, "{config}{line}");
    }
    let alike = || Host::new().with("GPUS", "2").with("MIG", "0:1,1:1");
    assert_eq!(run(&alike(), &strategy("single"), "1"), given(&instance(0, 0)));
    assert_eq!(run(&alike(), &strategy("single"), "2"), warned(format!("{},{}", instance(0, 0), instance(1, 0))));
    assert_eq!(run(&alike(), &strategy("single"), &format!("1 {profile}")), none("nvidia.com/mig-1g.5gb", "nvidia.com/gpu (2)"));
}

#[test]
fn whoever_has_an_instance_already_is_warned_of_another() {
    let (host, owner, other) = (half_divided(), Process::start(), Process::start());
    let line = |owner: &Process| {
        format!(
            "allocate 1 --resource nvidia.com/mig-1g.5gb --coordination-file record --owner {}",
            owner.pid()
        )
    };
    assert_eq!(run(&host, &strategy("mixed"), &line(&owner)), given(&instance(1, 0)));
    let warned = (Some(0), instance(1, 2) + "\n", warning(2));
    assert_eq!(run(&host, &strategy("mixed"), &line(&owner)), warned);
    let whole = format!("allocate 1 --coordination-file record --owner {}", owner.pid());
    assert_eq!(run(&host, &strategy("mixed"), &whole), given("0"), "it is none");
    let problem =
        "1 unit asked for, 0 of 2 can be given: 2 held by living owners (`gpu-coord status` names them)";
    assert_eq!(run(&host, &strategy("mixed"), &line(&other)), refused(1, problem));
}

/// Each instance is shared, and not its card.
#[test]
fn the_shares_of_instances_are_spread_over_instances() {
    let host = half_divided();
    let config = strategy("mixed")
        + "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, rename: shared, replicas: 2}]}}\n";
    let (mut owners, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let owner = Process::start();
        let line = format!(
            "allocate 1 --resource nvidia.com/shared --coordination-file record --owner {}",
            owner.pid()
        );
        answers.push(run(&host, &config, &line));
        owners.push(owner);
    }
    let (first, second) = (given(&instance(1, 0)), given(&instance(1, 2)));
    assert_eq!(answers, [first.clone(), second.clone(), first, second]);
    let both = run(&host, &config, "3 --resource nvidia.com/shared");
    assert_eq!(both, (Some(0), format!("{},{}\n", instance(1, 0), instance(1, 2)), warning(2)));
    let packed = run(&host, &config, "2 --resource nvidia.com/shared --policy pack");
    assert_eq!(packed, given(&instance(1, 0)));
    let status = run(&host, &config, "status --json --coordination-file record").1;
    let status: Value = serde_json::from_str(&status).unwrap();
    let shown = status["devices"][1]["units"].as_array().unwrap().iter().map(|unit| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (unit["slot"].as_u64().unwrap(), text(&unit["instance"]["uuid"]), text(&unit["resource"]))
    });
    let unit = |slot, place| (slot, instance(1, place), "nvidia.com/shared".to_owned());
    assert_eq!(shown.collect::<Vec<_>>(), [unit(0, 0), unit(1, 0), unit(0, 2), unit(1, 2)]);
}

/// Since R470 a UUID does not say where the instance is.
#[test]
#[rustfmt::skip] // a table
fn nvidia_smi_names_instances_in_two_ways() {
    let modern = ["  MIG 1g.5gb      Device  0: (UUID: MIG-b-0)", "  MIG 3g.20gb     Device  1: (UUID: MIG-b-1)"];
    let old = ["  MIG 1g.5gb Device 0: (UUID: MIG-GPU-2-a/7/0)", "  MIG 3g.20gb Device 1: (UUID: MIG-GPU-2-a/1/0)"];
    for (lines, small, large) in [(modern, "MIG-b-0", "MIG-b-1"), (old, "MIG-GPU-2-a/7/0", "MIG-GPU-2-a/1/0")] {
        let host = with_mig(&listing(&lines), &details(&[(0, 7, 0), (1, 1, 0)]));
        let none = "this host has no resource `nvidia.com/mig-3g.20gb`; it has nvidia.com/gpu (1): name one with --resource";
        let unlike = "migStrategy single needs instances that are all alike, and there are 1g.5gb on device 1; 3g.20gb on device 1; no MIG on device 0; use mixed";
        for (strategy, words, answer) in [
            ("mixed",  "1",                                        Ok("0".to_owned())),
            ("mixed",  "1 --resource nvidia.com/mig-1g.5gb",       Ok(small.to_owned())),
            ("mixed",  "1 --resource nvidia.com/mig-3g.20gb",      Ok(large.to_owned())),
            ("none",   "1",                                        Ok("0".to_owned())),
            ("none",   "1 --resource nvidia.com/mig-3g.20gb",      Err((2, none))),
            ("single", "1",                                        Err((4, unlike))),
        ] {
            fs::write(host.path("config.yaml"), self::strategy(strategy)).unwrap();
            let words: Vec<&str> = words.split(' ').chain(["--source", "nvidia-smi", "--config", "config.yaml"]).collect();
            let assert = host.command(&words).assert();
            match answer {
                Ok(answer) => assert.code(0).stderr("").stdout(answer + "\n"),
                Err((status, problem)) => assert.code(status).stdout("").stderr(format!("gpu-coord: {problem}\n")),
            };
        }
        let list = format!("sharing: {{timeSlicing: {{resources: [{{name: mig-1g.5gb, replicas: 2, devices: [{small}]}}]}}}}\n");
        fs::write(host.path("config.yaml"), strategy("mixed") + &list).unwrap();
        let words = ["2", "--resource", "nvidia.com/mig-1g.5gb", "--source", "nvidia-smi", "--config", "config.yaml"];
        host.command(&words).assert().code(0).stderr("").stdout(format!("{small}\n"));
    }
}
