use super::*;
use crate::tokens::JwksLocation;
use highwater_log::CleanupPolicy;
use std::time::Duration;

fn read_with(
    text: &str,
    variables: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<(Config, Settings), String> {
    let owned = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect::<Vec<_>>()
    };
    let sources = Sources {
        file: None,
        variables: owned(variables),
        flags: owned(flags),
    };
    read(text, &sources, Path::new("folder")).map_err(|problems| {
        ConfigError {
            file: Some("highwater.toml".into()),
            problems,
        }
        .to_string()
    })
}

fn config(text: &str) -> Config {
    read_with(text, &[], &[]).unwrap().0
}

/// `highwater.toml:3:7: ..` becomes `highwater.toml:3: ..`: the other tests check lines only.
fn without_columns(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("highwater.toml:") {
        Some(rest) => {
            let (number, rest) = rest.split_once(':').unwrap();
            let (_column, rest) = rest.split_once(':').unwrap();
            format!("highwater.toml:{number}:{rest}")
        }
        None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_mistake_has_its_line_and_column() {
    let error = read_with("[http]\nlisten = 7", &[], &[]).unwrap_err();
    assert!(error.starts_with("highwater.toml:2:10: "), "{error}");
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let refused = read_with(text, &[], &[]).unwrap_err();
    assert_eq!(without_columns(&refused), expected);
}

const SAMPLE: &str = r#"
data = "data"
[kafka]
listen = "127.0.0.1:9092"
[[kafka.listeners]]
listen = "127.0.0.1:9093"
sasl = true
[[kafka.listeners]]
listen = "127.0.0.1:9094"
tls = { cert = "cert.pem", key = "key.pem" }
sasl = true
[http]
listen = "127.0.0.1:8080"
[[keys]]
name = "app"
secret = "s3cret"
rights = ["send", "listen", "manage"]
[hubs.telemetry]
partitions = 4
retention = "7d"
[hubs."toll.raw"]
retention = "forever"
cleanup = "compact"
"#;

#[test]
fn the_sample_is_read() {
    let config = config(SAMPLE);
    assert_eq!(config.data, Path::new("folder/data"));
    let listeners: Vec<String> = config
        .kafka
        .iter()
        .map(|listener| {
            format!(
                "{} {} {}",
                listener.listen,
                listener.sasl,
                listener.tls.is_some()
            )
        })
        .collect();
    assert_eq!(
        listeners,
        [
            "127.0.0.1:9092 true false",
            "127.0.0.1:9093 true false",
            "127.0.0.1:9094 true true"
        ]
    );
    assert_eq!(config.keys.len(), 1);
    let hubs: Vec<(&str, u32, Option<Duration>, CleanupPolicy)> = config
        .hubs
        .iter()
        .map(|hub| {
            (
                hub.name.as_str(),
                hub.partitions,
                hub.settings.retention,
                hub.settings.cleanup,
            )
        })
        .collect();
    let week = Duration::from_secs(7 * 24 * 3600);
    assert_eq!(
        hubs,
        [
            ("toll.raw", 4, None, CleanupPolicy::Compact),
            ("telemetry", 4, Some(week), CleanupPolicy::Delete)
        ]
    );
}

#[test]
fn without_settings_a_node_listens_on_this_machine_only() {
    let config = config("");
    assert_eq!(config.data, Path::new("highwater-data"));
    assert!(config.http.unwrap().listen.ip().is_loopback());
    assert!(
        config
            .kafka
            .iter()
            .all(|listener| listener.listen.ip().is_loopback())
    );
    assert_eq!(
        (config.durability, config.auto_create),
        (Durability::Fsync, Some(4))
    );
}

#[test]
fn the_defaults_of_the_table_are_those_of_the_code() {
    let built = config("").http.unwrap();
    assert_eq!(
        format!("{built:?}"),
        format!("{:?}", http::Options::default())
    );
    let hub = &config("[hubs.a]").hubs[0];
    assert_eq!(hub.settings, highwater_log::HubSettings::default());
}

#[test]
fn an_unknown_key_is_reported_with_its_line_and_the_nearest_known_one() {
    refused(
        "data = 'x'\n[http]\nlisten = '127.0.0.1:1'\nconections_max = 3\n",
        "highwater.toml:4: unknown key `conections_max` in [http]\n  did you mean \"connections_max\"?",
    );
    refused(
        "[hubs.a]\nzzz = 1\n",
        "highwater.toml:2: unknown key `zzz` in [hubs.a]\n  known keys: partitions, retention, retention_bytes, batch_bytes_max, cleanup",
    );
    refused(
        "[htp]\nlisten = 'x'\n",
        "highwater.toml:1: unknown key `htp`\n  did you mean \"http\"?",
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    refused(
        "durability = 'maybe'\n[hubs.a]\npartitions = '4'\nretention = 'soon'\n[keys]\n",
        "highwater.toml:1: `durability` has a wrong value: expected one of fsync, os\n\
         highwater.toml:3: `hubs.a.partitions` has a wrong value: expected a number from 1 to 1024\n\
         highwater.toml:4: `hubs.a.retention` has a wrong value: expected a time such as \"12h\" or \"7d\", or \"forever\"",
    );
    refused(
        "a = [",
        "highwater.toml:1: not valid TOML: unclosed array, expected `]`",
    );
    refused("http = 3", "highwater.toml:1: `http` must be a table");
    refused("keys = ['a']", "highwater.toml:1: `keys` must be a table");
}

#[test]
fn names_that_no_hub_may_have_are_refused() {
    refused(
        "[hubs.\"a b\"]\n",
        "highwater.toml:1: `a b` cannot name a hub: use 1 to 249 letters, digits, dots, dashes and underscores, and neither `.` nor `..`\n  choose another name",
    );
    refused(
        "[hubs.api]\n",
        "highwater.toml:1: `api` begins paths of the HTTP API, and cannot name a hub or queue\n  choose another name",
    );
    refused(
        "[hubs.__x]\n",
        "highwater.toml:1: `__x` begins with `__`, which is reserved for the node\n  choose another name",
    );
}

// proves L7
#[test]
fn a_sharded_hub_has_several_members() {
    let config = config("[sharded.t]\nhubs = ['t0', 't.1']\n[hubs.t0]\npartitions = 2\n");
    let sharded = &config.sharded[0];
    let hubs: Vec<&str> = sharded.hubs.iter().map(|hub| hub.as_str()).collect();
    assert_eq!((sharded.name.as_str(), hubs), ("t", vec!["t0", "t.1"]));
    refused(
        "[sharded.t]\nhubs = []\n",
        "highwater.toml:2: `sharded.t.hubs` has a wrong value: the list is empty",
    );
    refused(
        "[sharded.t]\nhubs = ['a', 'a']\n[sharded.u]\nhubs = ['t']\n[sharded.v]\n[sharded.w]\nhubs = ['__x']\n[hubs.t]\n",
        "highwater.toml:1: `t` is a hub, and cannot be a sharded one too\n  choose another name\n\
         highwater.toml:2: `a` is named twice\n  name each hub once\n\
         highwater.toml:4: `t` is a sharded hub itself\n  name plain hubs only\n\
         highwater.toml:5: sharded hub `v` has no members\n  write hubs = [\"t0\", \"t1\"]\n\
         highwater.toml:7: `__x` begins with `__`, which is reserved for the node\n  choose another name",
    );
}

#[test]
fn a_key_needs_a_name_rights_and_a_secret() {
    refused(
        "[[keys]]\nrights = ['send']\n",
        "highwater.toml:1: a key needs a name\n  write name = \"app\"",
    );
    refused(
        "[[keys]]\nname = 'a'\nsecret = 's3cret'\n",
        "highwater.toml:1: key `a` has no rights\n  write rights = [\"send\"], or also \"listen\", \"manage\" and \"deploy\"",
    );
    refused(
        "[[keys]]\nname = 'a'\nrights = ['send']\n",
        "highwater.toml:1: key `a` has no secret\n  write secret or secret_file, or set HIGHWATER_KEYS_A_SECRET",
    );
    refused(
        "[[keys]]\nname = 'a'\nrights = ['read']\nsecret = 's3cret'\n",
        "highwater.toml:3: `keys.a.rights` has a wrong value: `read` is none of send, listen, manage, deploy",
    );
    refused(
        "[[keys]]\nname = 'a'\nrights = ['send']\nsecret = 'short'\n",
        "highwater.toml:4: the secret of key `a` is shorter than 6 characters\n  make one with: openssl rand -base64 32",
    );
    refused(
        "[[keys]]\nname = 'a'\nrights = ['send']\nsecret_file = 'nothing.txt'\n",
        "highwater.toml:4: cannot read the secret of key `a`: No such file or directory (os error 2)\n  looked for folder/nothing.txt",
    );
}

// proves U3
#[test]
fn an_address_beyond_this_machine_needs_keys_and_tls() {
    refused(
        "[http]\nlisten = '0.0.0.0:8080'\n",
        "highwater.toml:2: 0.0.0.0:8080 can be reached from other machines without a key\n  \
         add a [[keys]] table with name, secret and rights, or listen on 127.0.0.1",
    );
    let keys = "[[keys]]\nname = 'a'\nsecret = 's3cret'\nrights = ['send']\n";
    refused(
        &format!("{keys}[http]\nlisten = '0.0.0.0:8080'\n"),
        "highwater.toml:6: keys would travel unencrypted to 0.0.0.0:8080 from other machines\n  \
         add tls = { cert = \"..\", key = \"..\" }, or insecure = true if a proxy in front does TLS",
    );
    let open = format!("{keys}[http]\nlisten = '0.0.0.0:8080'\ninsecure = true\n");
    assert!(config(&open).http.is_some());
    let tls = format!("{keys}[http]\nlisten = '0.0.0.0:8080'\ntls = {{ cert = 'c', key = 'k' }}\n");
    let files = config(&tls).http.unwrap().tls.unwrap();
    assert_eq!(files.cert, Path::new("folder/c"));
    refused(
        "[http.tls]\ncert = 'c'\n",
        "highwater.toml:2: `http.tls.cert` needs `http.tls.key`\n  give both PEM files",
    );
}

// proves U3
#[test]
fn keys_close_every_kafka_listener_that_is_not_said_to_be_anonymous() {
    let keys = "[[keys]]\nname = 'a'\nsecret = 's3cret'\nrights = ['send']\n";
    let sasl = |text: &str| -> Vec<bool> {
        let kafka = config(text).kafka;
        kafka.iter().map(|listener| listener.sasl).collect()
    };
    let another = "[[kafka.listeners]]\nlisten = '127.0.0.1:9093'\n";
    assert_eq!(sasl(another), [false, false]);
    assert_eq!(sasl(&format!("{keys}{another}")), [true, true]);
    let first = format!("{keys}[kafka]\nanonymous = true\n{another}");
    assert_eq!(sasl(&first), [false, true]);
    assert_eq!(
        sasl(&format!("{keys}{another}anonymous = true\n")),
        [true, false]
    );
    refused(
        &format!("{keys}{another}sasl = true\nanonymous = true\n"),
        "highwater.toml:8: a listener with sasl = true serves no anonymous clients\n  remove one of the two",
    );
}

// proves U3
#[test]
fn a_kafka_address_beyond_this_machine_needs_sasl_and_tls() {
    refused(
        "[kafka]\nlisten = '10.0.0.1:9092'\n",
        "highwater.toml:2: 10.0.0.1:9092 can be reached from other machines without a key\n  \
         use a [[kafka.listeners]] table with sasl = true and tls, or listen on 127.0.0.1",
    );
    refused(
        "[[kafka.listeners]]\nlisten = '127.0.0.1:9093'\nsasl = true\n",
        "highwater.toml:3: sasl = true needs keys\n  add a [[keys]] table with name, secret and rights",
    );
    refused(
        "[kafka]\nadvertised = 'here'\n",
        "highwater.toml:2: `here` is no address that clients can connect to\n  write host:port",
    );
    refused(
        "[[kafka.listeners]]\nsasl = false\n",
        "highwater.toml:1: a Kafka listener needs an address\n  write listen = \"127.0.0.1:9093\"",
    );
    let keys = "[[keys]]\nname = 'a'\nsecret = 's3cret'\nrights = ['send']\n";
    refused(
        &format!("{keys}[kafka]\nlisten = '10.0.0.1:9092'\n"),
        "highwater.toml:6: keys would travel unencrypted to 10.0.0.1:9092 from other machines\n  \
         use a [[kafka.listeners]] table with tls",
    );
    refused(
        &format!("{keys}[kafka]\nlisten = '10.0.0.1:9092'\nanonymous = true\n"),
        "highwater.toml:6: 10.0.0.1:9092 can be reached from other machines without a key\n  \
         use a [[kafka.listeners]] table with sasl = true and tls, or listen on 127.0.0.1",
    );
    refused(
        &format!("{keys}[[kafka.listeners]]\nlisten = '[::]:9093'\nsasl = true\n"),
        "highwater.toml:6: keys would travel unencrypted to [::]:9093 from other machines\n  \
         add tls = { cert = \"..\", key = \"..\" }, or insecure = true if a proxy in front does TLS",
    );
}

#[test]
fn flags_beat_variables_and_variables_beat_the_file() {
    let file = "[http]\nlisten = '127.0.0.1:1'\n[hubs.a]\npartitions = 1\n[[keys]]\nname = 'app'\nrights = ['send']\n";
    let variables = [
        ("HIGHWATER_HTTP_LISTEN", "127.0.0.1:2"),
        ("HIGHWATER_HUBS_A_PARTITIONS", "2"),
        ("HIGHWATER_KEYS_APP_SECRET", "s3cret"),
        ("HIGHWATER_SERVICE_PORT", "tcp://10.0.0.1:80"),
    ];
    let flags = [("http.listen", "127.0.0.1:3"), ("hubs.b.partitions", "7")];
    let (config, settings) = read_with(file, &variables, &flags).unwrap();
    assert_eq!(config.http.as_ref().unwrap().listen.port(), 3);
    let partitions: Vec<u32> = config.hubs.iter().map(|hub| hub.partitions).collect();
    assert_eq!(partitions, [2, 7]);
    let shown: Vec<String> = settings
        .shown()
        .filter(|(.., origin)| **origin != Origin::Default)
        .map(|(key, value, origin)| format!("{key} = {value} ({})", origin.show("f")))
        .collect();
    assert_eq!(
        shown,
        [
            "http.listen = 127.0.0.1:3 (flag)",
            "hubs.a.partitions = 2 (HIGHWATER_HUBS_A_PARTITIONS)",
            "hubs.b.partitions = 7 (flag)",
            "keys.app.name = app (f:6)",
            "keys.app.rights = send (f:7)",
            "keys.app.secret = ******** (HIGHWATER_KEYS_APP_SECRET)",
        ]
    );
}

#[test]
fn a_wrong_variable_or_flag_is_named() {
    let wrong = read_with(
        "",
        &[("HIGHWATER_HTTP_CONNECTIONS_MAX", "many")],
        &[("http.listn", "off")],
    );
    assert_eq!(
        wrong.unwrap_err(),
        "flag: there is no setting `http.listn`\n  did you mean \"http.listen\"?\n\
         HIGHWATER_HTTP_CONNECTIONS_MAX: expected a number from 1 to 1000000"
    );
}

// proves G3
#[test]
fn secrets_are_never_quoted() {
    let flags = [
        ("processors.p.handler.url", "ftp://h/a?code=hidden"),
        ("processors.p.hub", "h"),
        ("keys.app.secret", " "),
    ];
    let error = read_with("", &[], &flags).unwrap_err();
    assert!(!error.contains("hidden"), "{error}");
    let url = [("notify.url", "https://u:hidden@h/a?code=hidden")];
    let error = read_with("", &[], &url).unwrap_err();
    assert!(error.contains("names no host, or a user"), "{error}");
    assert!(!error.contains("hidden"), "{error}");
    let (_, settings) = read_with("", &[], &[("notify.url", "https://h/a?code=hidden")]).unwrap();
    let shown = settings.shown().find(|(key, ..)| *key == "notify.url");
    assert_eq!(shown.unwrap().1, "https://h/a?code=******");
}

/// docs/config.md has a row for every setting, with the same default and help, and no other.
#[test]
fn the_manual_lists_every_setting() {
    let page = include_str!("../../../../docs/config.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let expected: Vec<String> = SETTINGS
        .iter()
        .map(|setting| {
            let default = match setting.default {
                "" => String::new(),
                default => format!("`{default}`"),
            };
            format!("| `{}` | {default} | {} |", setting.key, setting.help)
        })
        .collect();
    assert_eq!(
        rows,
        expected,
        "docs/config.md should have:\n{}",
        expected.join("\n")
    );
}

// proves G4
#[test]
fn the_keys_of_an_issuer_come_from_a_file_or_an_encrypted_address() {
    let tokens = |more: &str| {
        format!("[tokens]\nissuer = 'https://id.example'\naudience = 'highwater'\n{more}\n")
    };
    for url in [
        "https://id.example/keys",
        "http://127.0.0.1:8080/keys",
        "http://[::1]/keys",
        "http://localhost/keys",
    ] {
        let settings = config(&tokens(&format!("jwks_url = '{url}'")))
            .tokens
            .unwrap();
        let expected = JwksLocation::Url {
            url: url.parse().unwrap(),
            ca: None,
        };
        assert_eq!(settings.jwks, expected);
    }
    refused(
        &tokens("jwks_url = 'http://id.example/keys'"),
        "highwater.toml:4: the keys of the issuer would travel unencrypted\n  \
         write https://.., or http:// for an issuer on this machine",
    );
    refused(
        &tokens("jwks = 'keys.json'\njwks_url = 'https://id.example/keys'"),
        "highwater.toml:5: tokens have both jwks and jwks_url\n  keep one of them",
    );
    refused(
        &tokens(""),
        "highwater.toml:2: tokens need the keys of the issuer\n  \
         write jwks_url = \"https://..\", or jwks = \"FILE\"",
    );
}

// proves G4
#[test]
fn a_key_with_certificates_or_tokens_needs_no_secret() {
    let key =
        |name: &str, more: &str| format!("[[keys]]\nname = '{name}'\nrights = ['send']\n{more}\n");
    let certificates = "certificates = ['CN 1', 'spiffe://example/app']";
    let keys = config(&key("app", certificates)).keys;
    assert_eq!(keys[0].certificates, ["CN 1", "spiffe://example/app"]);
    let tokens = "[tokens]\nissuer = 'i'\naudience = 'a'\njwks = 'keys.json'\n";
    assert_eq!(config(&(key("app", "") + tokens)).keys.len(), 1);
    refused(
        &(key("app", certificates) + &key("other", "certificates = ['CN 1']")),
        "highwater.toml:8: `CN 1` is a certificate of key `app` too\n  a certificate acts for one key",
    );
    refused(
        "[http.tls]\nclient_ca = 'ca.pem'\n",
        "highwater.toml:2: `http.tls.client_ca` needs `http.tls.cert`\n  give the node a certificate",
    );
}
