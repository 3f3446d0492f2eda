//! Definitions in TOML, and the mistakes reported for invalid ones.

use expect_test::{Expect, expect};

use highwater_settings::FileError;

use super::*;

fn read(source: &str) -> Result<Definition, FileError> {
    Definition::from_toml("w.toml", source)
}

fn wrong(source: &str, expected: Expect) {
    match read(source) {
        Ok(definition) => panic!("nothing is wrong with {definition:#?}"),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

const WHOLE: &str = r#"
name = "delivery"
deadline = "5m"
notify = { url = "http://ops:9000/hook?x=1", on = ["parked", "failed"] }

[services.drone]
url = "https://drones.example.org/v1"
concurrency = 20
timeout = "2s"
retry = { tries = 4, delay = "100ms", delay_max = "2s", jitter = 10 }
circuit = { window = "5s", failures = 10, percent = 75, open = "3s" }

[[steps]]
name = "account"
call = "GET http://127.0.0.1:7001/api/accounts/{{input.ownerId}}"
refuse_when = "steps.account.body == false"
reason = "the account is suspended"

[[steps]]
name = "drone"
service = "drone"
call = "put /drones/{{id}}"
headers = { x-owner = "{{input.ownerId}}" }
body = { id = "{{id}}", packages = [{ id = "{{input.package}}" }], express = true, weight = 1.5 }
expect = [200]
refuse = [409]
timeout = "9s"
when = "input.fly"
group = "g"
after = "10s"
undo = { call = "DELETE /drones/{{id}}", retry = { tries = 50 } }

[[steps]]
name = "audit"
function = "audit"
group = "g"
undo = { function = "unaudit", timeout = "1s" }
"#;

#[test]
fn everything_that_can_be_said_is_understood() {
    let definition = read(WHOLE).unwrap_or_else(|error| panic!("{error}"));
    let [account, drone, audit] = &definition.steps[..] else {
        panic!("three steps");
    };
    assert_eq!(definition.deadline, Some(Duration::from_secs(300)));
    assert_eq!(definition.stage(0), 0..1);
    assert_eq!(definition.stage(1), 1..3);
    let services: Vec<_> = definition
        .services
        .iter()
        .map(|s| s.target.authority())
        .collect();
    assert_eq!(
        services,
        ["drones.example.org", "127.0.0.1:7001", "ops:9000"]
    );
    let reason = account
        .refuse_when
        .as_ref()
        .map(|refusal| refusal.reason.as_str());
    assert_eq!(reason, Some("the account is suspended"));
    assert_eq!(
        (drone.work.retry.tries, drone.work.timeout.as_secs()),
        (4, 9)
    );
    let undo = drone.undo.as_ref().unwrap();
    assert_eq!((undo.retry.tries, undo.timeout.as_secs()), (50, 2));
    let Action::Call(call) = &undo.action else {
        panic!("a call");
    };
    assert!(call.is_expected(404), "what is not there is undone");
    assert_eq!(audit.work.action, Action::Function("audit".into()));
    let notify = definition.notify.as_ref().unwrap();
    assert_eq!(notify.path, "/hook?x=1");
}

#[test]
fn the_example_of_the_guide_is_right() {
    let guide = include_str!("../../../../docs/workflows.md");
    let example = guide.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let definition = read(example).unwrap_or_else(|error| panic!("{error}"));
    let steps: Vec<&str> = definition.steps.iter().map(|s| s.name.as_str()).collect();
    let expected = ["account", "package", "third-party", "drone", "delivery"];
    assert_eq!(steps, expected);
}

// proves W5
#[test]
fn a_definition_is_kept_as_json_under_its_version() {
    let definition = read(WHOLE).unwrap();
    let again = Definition::from_json(&definition.to_json()).unwrap();
    assert_eq!(again, definition);
    assert_eq!(again.version(), definition.version());
    let other = read(&WHOLE.replace("9s", "8s")).unwrap();
    assert_ne!(other.version(), definition.version());
}

#[test]
fn mistakes_are_told_with_their_line_and_what_would_be_right() {
    wrong(
        "name = 'w'\ndeadlin = '5m'\n[[steps]]\nname = 'a'\ncall = 'GET http://s/x'\nexepct = [200]\n",
        expect![[r#"
            error: unknown key "deadlin"
             --> w.toml:2:1
              |
            2 | deadlin = '5m'
              | ^^^^^^^ did you mean "deadline"?
              = known keys: name, deadline, services, steps, notify

            error: unknown key "exepct" in [[steps]]
             --> w.toml:6:1
              |
            6 | exepct = [200]
              | ^^^^^^ did you mean "expect"?
              = known keys: name, undo, when, refuse_when, reason, finish_when, group, after, service, call, function, headers, body, expect, refuse, timeout, retry"#]],
    );
    wrong(
        "name = 'w'\n[services.drone]\nurl = 'drones:80'\n[[steps]]\nname = 'a'\nservice = 'dron'\ncall = 'GET /x'\n",
        expect![[r#"
            error: `drones:80` is no address of a service: write http://host:port
             --> w.toml:3:7
              |
            3 | url = 'drones:80'
              |       ^^^^^^^^^^^

            error: there is no service "dron"
             --> w.toml:6:11
              |
            6 | service = 'dron'
              |           ^^^^^^ did you mean "drone"?"#]],
    );
    wrong(
        "name = 'w'\n[[steps]]\nname = 'a'\ncall = 'GET http://s/{{input.a'\ntimeout = 'soon'\nexpect = [99]\n",
        expect![[r#"
            error: "call": `/{{input.a` has `{{` without `}}`
             --> w.toml:4:8
              |
            4 | call = 'GET http://s/{{input.a'
              |        ^^^^^^^^^^^^^^^^^^^^^^^^

            error: "soon" is not a duration
             --> w.toml:5:11
              |
            5 | timeout = 'soon'
              |           ^^^^^^ expected a duration
              = a duration is "150ms", "5s", "3m", "1h30m", "2d" or the like"#]],
    );
    wrong(
        "name = 'w'\n[[steps]]\nname = 'a'\ncall = 'GET http://{{input.host}}/'\n[[steps]]\nname = 'b'\n",
        expect![[r#"
            error: `http://{{input.host}}` is no address of a service: write http://host:port
             --> w.toml:4:8
              |
            4 | call = 'GET http://{{input.host}}/'
              |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the host cannot have holes

            error: [[steps]] needs either "call" or "function"
             --> w.toml:5:1
              |
            5 | [[steps]]
              | ^^^^^^^^^ add call = "PUT /api/packages/{{input.id}}""#]],
    );
    wrong(
        "name = \"w\"\n[[steps]\n",
        expect![[r#"
            error: not valid TOML: unclosed array table, expected `]`
             --> w.toml:2:9
              |
            2 | [[steps]
              |         ^"#]],
    );
    wrong(
        "",
        expect![[r#"
            error: missing key "name"
             --> w.toml:1:1
              |
            1 | 
              | ^ add name = "delivery"

            error: missing key "steps"
             --> w.toml:1:1
              |
            1 | 
              | ^ add a [[steps]] table for each step"#]],
    );
}

#[test]
fn what_cannot_be_known_yet_is_refused() {
    let steps = |first: &str, second: &str| {
        format!(
            "name = 'w'\n[[steps]]\nname = 'package'\ncall = 'GET http://s/a'\n{first}\n[[steps]]\nname = 'drone'\ncall = 'GET http://s/b'\n{second}\n"
        )
    };
    wrong(
        &steps("when = 'steps.drone.status == 200'", ""),
        expect![[r#"
            error: step "package": `steps.drone.status` is not known yet: `drone` is not done before
             --> w.toml:2:1
              |
            2 | [[steps]]
              | ^^^^^^^^^"#]],
    );
    wrong(
        &steps("", "body = '{{steps.pakage.body}}'"),
        expect![[r#"
            error: step "drone": `steps.pakage.body`: there is no step `pakage` before it; did you mean `package`?
             --> w.toml:6:1
              |
            6 | [[steps]]
              | ^^^^^^^^^"#]],
    );
    wrong(
        &steps(
            "group = 'g'",
            "group = 'g'\nheaders = { a = '{{steps.package.body}}' }",
        ),
        expect![[r#"
            error: step "drone": `steps.package.body` is not known yet: `package` is not done before
             --> w.toml:6:1
              |
            6 | [[steps]]
              | ^^^^^^^^^"#]],
    );
    wrong(
        &steps("", "when = 'input.a = 1'"),
        expect![[r#"
            error: "when": `= 1` cannot be read: write `==` to compare
             --> w.toml:9:8
              |
            9 | when = 'input.a = 1'
              |        ^^^^^^^^^^^^^"#]],
    );
    wrong(
        &steps("", "headers = { Idempotency-Key = 'x' }"),
        expect![[r#"
            error: step "drone": the header `Idempotency-Key` is set by the workflow itself
             --> w.toml:6:1
              |
            6 | [[steps]]
              | ^^^^^^^^^"#]],
    );
    assert!(
        read(&steps(
            "",
            "undo = { call = 'DELETE http://s/{{steps.drone.body}}' }"
        ))
        .is_ok()
    );
}
