//! The configuration file, well made and badly.

use super::*;

const FULL: &str = "\
version: v1
flags:
  migStrategy: mixed
  failOnInitError: true
  plugin: {passDeviceSpecs: false, deviceListStrategy: envvar}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
      devices: [0, GPU-1, 0:1]
    - {name: mig-1g.10gb, replicas: 2, rename: small, devices: 3}
imex: {}
gpu-coord:
  quotas:
    team-a: {nvidia.com/gpu.shared: 2}
    user:flink: {nvidia.com/gpu: 1, nvidia.com/small: 0}
  options: {deadline: 5, skip-busy: true}
  mps: {pipe-directory: /run/mps}
";

#[test]
fn a_configuration_of_the_plugin_is_one_of_ours() {
    let config = parse(FULL, None).unwrap();
    assert_eq!(config.mig, Some(MigStrategy::Mixed));
    let sharing = config.sharing.unwrap();
    assert_eq!((sharing.way, sharing.fails_requests_greater_than_one), (Way::TimeSlicing, true));
    let shown: Vec<_> =
        sharing.resources.iter().map(|it| (it.name.as_str(), it.replicas, it.rename.as_deref())).collect();
    let gpus = ("nvidia.com/gpu", 4, Some("nvidia.com/gpu.shared"));
    assert_eq!(shown, [gpus, ("nvidia.com/mig-1g.10gb", 2, Some("nvidia.com/small"))]);
    let list = ["0", "GPU-1", "0:1"].map(str::to_owned).to_vec();
    assert_eq!(
        (&sharing.resources[0].devices, &sharing.resources[1].devices),
        (&SharedDevices::List(list), &SharedDevices::Count(3))
    );
    assert_eq!(config.ignored, ["flags.failOnInitError", "flags.plugin", "imex"]);
    let user = Whose::User("flink".to_owned());
    let quota = |whose: &Whose, resource: &str, limit, position| Quota {
        whose: whose.clone(),
        resource: resource.to_owned(),
        limit,
        position,
    };
    let team = quota(&Whose::Namespace("team-a".to_owned()), "nvidia.com/gpu.shared", 2, (18, 14));
    let gpu = quota(&user, "nvidia.com/gpu", 1, (19, 18));
    assert_eq!(config.quotas, [team, gpu, quota(&user, "nvidia.com/small", 0, (19, 37))]);
    assert_eq!(sharing.resources.iter().map(|it| it.position).collect::<Vec<_>>(), [(11, 7), (14, 7)]);
    let option = |name: &str, value: &str, position| Preset {
        name: name.to_owned(),
        value: value.to_owned(),
        position,
    };
    assert_eq!(config.options, [option("deadline", "5", (20, 13)), option("skip-busy", "true", (20, 26))]);
    assert_eq!((config.mps.pipe, config.mps.log), ("/run/mps".into(), "/var/log/nvidia-mps".into()));
}

#[test]
#[rustfmt::skip] // a table
fn what_is_wrong_is_told_with_its_place() {
    for (case, text, place, says) in [
        ("no YAML",        "a: [1",                                           (2, 1),  ""),
        ("a list",         "- a",                                             (1, 1),  "a configuration takes keys with values"),
        ("version 2",      "version: v2",                                     (1, 10), "version takes v1"),
        ("a key misspelt", "version: v1\nsharring: {}",                       (2, 1),  "`sharring` is not a key here; did you mean `sharing`?"),
        ("a flag",         "version: v1\nflags:\n  migStrategie: none",       (3, 3),  "`migStrategie` is not a key here; did you mean `migStrategy`?"),
        ("a strategy",     "version: v1\nflags: {migStrategy: all}",          (2, 22), "migStrategy takes none, single or mixed"),
        ("both ways",      "version: v1\nsharing: {timeSlicing: {resources: []}, mps: {resources: []}}", (2, 46), "timeSlicing and mps exclude each other"),
        ("no replicas",    "version: v1\nsharing: {mps: {resources: [{name: gpu}]}}", (2, 29), "`replicas` of nvidia.com/gpu is missing"),
        ("one replica",    "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 1}]}}", (2, 51), "replicas takes a number from 2 to 4096"),
        ("half a one",     "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2.5}]}}", (2, 51), "replicas takes a number from 2 to 4096"),
        ("devices",        "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2, devices: some}]}}", (2, 63), "devices takes `all`, a number of devices, or a list of indexes and UUIDs"),
        ("twice",          "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 3}]}}", (2, 28), "`nvidia.com/gpu` is shared twice"),
        ("a quota",        "version: v1\ngpu-coord: {quotas: {a: {nvidia.com/gpu: -1}}}", (2, 42), "the limit of nvidia.com/gpu takes a whole number"),
        ("own key",        "version: v1\ngpu-coord: {quota: {}}",             (2, 13), "`quota` is not a key here; did you mean `quotas`?"),
        ("two documents",  "version: v1\n---\nversion: v1",                   (3, 1),  "a configuration is one document, and here begins another"),
        ("a key twice",    "version: v1\nversion: v1",                        (2, 1),  ""),
        ("a tab",          "version: v1\nsharing:\n\ttimeSlicing: {}",         (3, 2),  "not YAML: tabs disallowed within this context (block indentation)"),
        ("a quote",        "version: \"v1",                                    (1, 10), "not YAML: while scanning a quoted scalar, found unexpected end of stream"),
        ("half indented",  "version: v1\nflags:\n    migStrategy: none\n  gfd: {}", (4, 3), "not YAML: while parsing a block mapping, did not find expected key"),
        ("no colon",       "version: v1\nflags\nsharing: {}",                  (3, 1),  "not YAML: simple key expect ':'"),
        ("brackets crossed", "version: v1\nsharing: {mps: [}]",               (2, 17), "not YAML: while parsing a node, did not find expected node content"),
        ("an alias of nothing", "version: v1\nflags: *other",                 (2, 8),  "not YAML: while parsing node, found unknown anchor"),
        ("a control character", "version: v1\nflags: \u{1}",                  (2, 8),  "flags takes keys with values"),
        ("a template",     "version: v1\nflags: {{ .Values.flags }}",         (2, 8),  "flags takes keys with values"),
        ("a text",         "version",                                         (1, 1),  "a configuration takes keys with values"),
        ("a number",       "7",                                               (1, 1),  "a configuration takes keys with values"),
        ("a list for a key", "[a, b]: v1",                                    (1, 1),  "a configuration takes keys with values"),
        ("a list of flags", "flags: [migStrategy]",                           (1, 8),  "flags takes keys with values"),
        ("a text as sharing", "sharing: yes",                                 (1, 10), "sharing takes keys with values"),
        ("a key of sharing", "sharing: {timeslicing: {}}",                     (1, 11), "`timeslicing` is not a key here; did you mean `timeSlicing`?"),
        ("a key of a way", "sharing: {mps: {resources: [], strategy: x}}",    (1, 32), "`strategy` is not a key here; known are renameByDefault, failRequestsGreaterThanOne, resources"),
        ("a key of a resource", "sharing: {mps: {resources: [{name: gpu, replicas: 2, device: all}]}}", (1, 54), "`device` is not a key here; did you mean `devices`?"),
        ("no resources",   "sharing: {mps: {renameByDefault: true}}",         (1, 16), "`resources` is missing: what is to be shared"),
        ("resources of none", "sharing: {mps: {resources: []}}",               (1, 28), "resources is empty: what is to be shared"),
        ("a map of resources", "sharing: {mps: {resources: {name: gpu}}}",     (1, 28), "resources takes a list"),
        ("a text as resource", "sharing: {mps: {resources: [gpu]}}",           (1, 29), "a resource takes keys with values"),
        ("no name",        "sharing: {mps: {resources: [{replicas: 2}]}}",    (1, 29), "`name` is missing"),
        ("an empty name",  "sharing: {mps: {resources: [{name: \"\", replicas: 2}]}}", (1, 36), "`` is not a resource name such as nvidia.com/gpu: lower-case letters, digits, `-` and `.`, at most 63 of them"),
        ("a name in capitals", "sharing: {mps: {resources: [{name: GPU, replicas: 2}]}}", (1, 36), "`GPU` is not a resource name such as nvidia.com/gpu: lower-case letters, digits, `-` and `.`, at most 63 of them"),
        ("a name of two domains", "sharing: {mps: {resources: [{name: a/b/c, replicas: 2}]}}", (1, 36), "`a/b/c` is not a resource name such as nvidia.com/gpu: lower-case letters, digits, `-` and `.`, at most 63 of them"),
        ("a rename with a blank", "sharing: {mps: {resources: [{name: gpu, replicas: 2, rename: a b}]}}", (1, 62), "`a b` is not a resource name such as nvidia.com/gpu: lower-case letters, digits, `-` and `.`, at most 63 of them"),
        ("a list as rename", "sharing: {mps: {resources: [{name: gpu, replicas: 2, rename: [a]}]}}", (1, 62), "rename takes a text"),
        ("a quoted truth", "sharing: {mps: {renameByDefault: \"true\", resources: []}}", (1, 34), "renameByDefault takes true or false"),
        ("a word for truth", "sharing: {timeSlicing: {failRequestsGreaterThanOne: yes, resources: []}}", (1, 53), "failRequestsGreaterThanOne takes true or false"),
        ("no device",      "sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: 0}]}}", (1, 63), "devices takes `all`, a number of devices, or a list of indexes and UUIDs"),
        ("a map of devices", "sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: {a: b}}]}}", (1, 63), "devices takes `all`, a number of devices, or a list of indexes and UUIDs"),
        ("a list of lists", "sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: [[0]]}]}}", (1, 63), "devices takes `all`, a number of devices, or a list of indexes and UUIDs"),
        ("many replicas",  "sharing: {mps: {resources: [{name: gpu, replicas: 4097}]}}", (1, 51), "replicas takes a number from 2 to 4096"),
        ("very many",      "sharing: {mps: {resources: [{name: gpu, replicas: 99999999999999999999}]}}", (1, 51), "replicas takes a number from 2 to 4096"),
        ("a quoted number", "sharing: {mps: {resources: [{name: gpu, replicas: \"2\"}]}}", (1, 51), "replicas takes a number from 2 to 4096"),
        ("own settings",   "gpu-coord: none",                                 (1, 12), "gpu-coord takes keys with values"),
        ("a list of quotas", "gpu-coord: {quotas: [a]}",                       (1, 21), "quotas takes namespaces with limits"),
        ("a quota of nothing", "gpu-coord: {quotas: {a: 2}}",                  (1, 25), "a quota takes resources with limits"),
        ("a quota in words", "gpu-coord: {quotas: {a: {gpu: two}}}",           (1, 31), "the limit of gpu takes a whole number"),
        ("a quota of half a unit", "gpu-coord: {quotas: {a: {gpu: 0.5}}}",     (1, 31), "the limit of gpu takes a whole number"),
        ("a quota of no resource", "gpu-coord: {quotas: {a: {\"g p u\": 2}}}", (1, 26), "`g p u` is not a resource name such as nvidia.com/gpu: lower-case letters, digits, `-` and `.`, at most 63 of them"),
        ("a quota of no user", "gpu-coord: {quotas: {\"user:\": {gpu: 2}}}",   (1, 22), "`user:` takes the name or the number of a user"),
        ("a list of options", "gpu-coord: {options: [deadline]}",              (1, 22), "options takes options with values"),
        ("an option of two", "gpu-coord: {options: {devices: [0, 1]}}",        (1, 32), "devices takes a text"),
        ("an option of nothing", "gpu-coord: {options: {json: }}",             (1, 27), "json takes a text"),
        ("a relative directory", "gpu-coord: {mps: {pipe-directory: tmp}}",    (1, 35), "pipe-directory takes an absolute path"),
        ("a list of directories", "gpu-coord: {mps: {log-directory: [/tmp]}}", (1, 34), "log-directory takes an absolute path"),
        ("a key of mps",   "gpu-coord: {mps: {pipes: /tmp}}",                 (1, 19), "`pipes` is not a key here; known are pipe-directory, log-directory"),
    ] {
        let problem = parse(text, None).unwrap_err();
        assert_eq!((problem.line, problem.column), place, "{case}: {problem:?}");
        assert!(says.is_empty() || problem.text == says, "{case}: {problem:?}");
    }
}

#[test]
fn a_config_map_has_several_of_which_one_is_chosen() {
    let map = "kind: ConfigMap\ndata:\n  a: |-\n    version: v1\n  b: |-\n    version: v1\n    flags:\n      migStrategy: all\n";
    assert_eq!(parse(map, Some("a")), Ok(Config::default()));
    let problem = |key| parse(map, key).unwrap_err();
    assert_eq!(problem(None).text, "has several configurations (a, b): choose one with --config-key");
    assert_eq!(problem(Some("c")).text, "has no configuration `c`; it has a, b");
    assert_eq!(
        (problem(Some("b")).line, problem(Some("b")).text.as_str()),
        (8, "migStrategy takes none, single or mixed")
    );
    let says = "not a ConfigMap, so there is no `a` to choose; leave --config-key out";
    assert_eq!(parse("version: v1", Some("a")).unwrap_err().text, says);
}

#[test]
fn an_empty_file_says_nothing() {
    for text in ["", "\n", "# nothing\n", "---\n", "version: v1\n"] {
        assert_eq!(parse(text, None), Ok(Config::default()), "{text:?}");
    }
}

/// Those of the plugin's README and of the documentation of NVIDIA's GPU operator, by their facts: what `resources`
/// names, how it is shared, and what it is called.
#[test]
#[rustfmt::skip] // a table
fn the_examples_of_the_plugin_are_read() {
    let gpus = |replicas, rename: Option<&str>| vec![(String::from("nvidia.com/gpu"), replicas, rename.map(str::to_owned))];
    for (case, text, mig, way, fails, resources) in [
        ("flags alone",        "version: v1\nflags:\n  migStrategy: \"none\"\n  failOnInitError: true\n  nvidiaDriverRoot: \"/\"\n  plugin:\n    passDeviceSpecs: false\n    deviceListStrategy: \"envvar\"\n    deviceIDStrategy: \"uuid\"\n",
            Some(MigStrategy::None), None, false, vec![]),
        ("several list strategies", "flags:\n  plugin:\n    deviceListStrategy:\n    - envvar\n    - cdi-annotations\n",
            None, None, false, vec![]),
        ("ten for each",       "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n",
            None, Some(Way::TimeSlicing), false, gpus(10, None)),
        ("renamed",            "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n",
            None, Some(Way::TimeSlicing), false, gpus(10, Some("nvidia.com/gpu.shared"))),
        ("MPS",                "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n",
            None, Some(Way::Mps), true, gpus(10, None)),
        ("MPS, renamed",       "version: v1\nsharing:\n  mps:\n    renameByDefault: true\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n",
            None, Some(Way::Mps), true, gpus(10, Some("nvidia.com/gpu.shared"))),
        ("no version, as operators write it", "flags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    renameByDefault: false\n    failRequestsGreaterThanOne: false\n    resources:\n      - name: nvidia.com/gpu\n        replicas: 4\n",
            Some(MigStrategy::None), Some(Way::TimeSlicing), false, gpus(4, None)),
        ("profiles",           "version: v1\nflags:\n  migStrategy: mixed\nsharing:\n  timeSlicing:\n    failRequestsGreaterThanOne: true\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 2\n    - name: nvidia.com/mig-1g.5gb\n      replicas: 4\n",
            Some(MigStrategy::Mixed), Some(Way::TimeSlicing), true, [gpus(2, None), vec![("nvidia.com/mig-1g.5gb".to_owned(), 4, None)]].concat()),
        ("JSON, which YAML is", r#"{"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 3, "devices": "all"}]}}}"#,
            None, Some(Way::TimeSlicing), false, gpus(3, None)),
        ("nothing behind a key", "version: v1\nflags:\n  migStrategy:\nsharing:\nresources:\nimex:\nhealth:\ngpu-coord:\n",
            None, None, false, vec![]),
    ] {
        let config = parse(text, None).unwrap_or_else(|problem| panic!("{case}: {problem:?}"));
        assert_eq!(config.mig, mig, "{case}");
        let sharing = config.sharing;
        assert_eq!(sharing.as_ref().map(|sharing| sharing.way), way, "{case}");
        assert_eq!(sharing.as_ref().is_some_and(|sharing| sharing.fails_requests_greater_than_one), fails, "{case}");
        let shared = sharing.into_iter().flat_map(|sharing| sharing.resources);
        let shared: Vec<_> = shared.map(|it| (it.name, it.replicas, it.rename)).collect();
        assert_eq!(shared, resources, "{case}");
    }
}

#[test]
fn what_is_the_plugins_alone_is_named() {
    let text = "version: v1
flags:
  failOnInitError: true
  mpsRoot: /run/nvidia/mps
  nvidiaDriverRoot: /
  nvidiaDevRoot: /
  gdrcopyEnabled: false
  gdsEnabled: false
  mofedEnabled: false
  useNodeFeatureAPI: false
  deviceDiscoveryStrategy: auto
  plugin: {}
  gfd: {oneshot: false}
resources: {gpus: [{pattern: \"*\", name: gpu}]}
imex: {channelIDs: [0], required: true}
health: {}
";
    let flags = "failOnInitError mpsRoot nvidiaDriverRoot nvidiaDevRoot gdrcopyEnabled gdsEnabled mofedEnabled \
                 useNodeFeatureAPI deviceDiscoveryStrategy plugin gfd";
    let ignored = flags.split(' ').map(|flag| format!("flags.{flag}"));
    let ignored: Vec<String> = ignored.chain(["resources", "imex", "health"].map(str::to_owned)).collect();
    assert_eq!(parse(text, None), Ok(Config { ignored, ..Config::default() }));
}

/// Line and column of what is wrong in the text that lies below a key, as the whole file has them.
#[test]
#[rustfmt::skip] // a table
fn a_place_in_a_config_map_is_that_of_the_file() {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin}\ndata:\n";
    for (case, rest, place, says) in [
        ("below the key",      "  a: |\n    version: v1\n    flags: {migStrategy: all}\n", (7, 26), "migStrategy takes none, single or mixed"),
        ("without a line end", "  a: |-\n    version: v1\n    flags: {migStrategy: all}",   (7, 26), "migStrategy takes none, single or mixed"),
        ("the second",         "  b: x\n  a: |\n    version: v2\n",                        (7, 14), "version takes v1"),
        ("no YAML",            "  a: |\n    version: [\n",                                 (7, 1),  ""),
        ("a map, no text",     "  a:\n    version: v1\n",                                  (6, 5),  "a configuration in a ConfigMap takes a text"),
        ("an option",          "  a: |\n    gpu-coord:\n      options: {devices: []}\n",     (7, 26), "devices takes a text"),
    ] {
        let problem = parse(&(head.to_owned() + rest), Some("a")).unwrap_err();
        assert_eq!((problem.line, problem.column), place, "{case}: {problem:?}");
        assert!(says.is_empty() || problem.text == says, "{case}: {problem:?}");
    }
    let option = parse(&(head.to_owned() + "  a: |\n    gpu-coord:\n      options: {nonsense: 1}\n"), None);
    assert_eq!(option.unwrap().options[0].position, (7, 17));
}
