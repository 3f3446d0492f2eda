//! Handlers that are programs. proves P1, P3

use serde_json::{Value, json};

use crate::processing::world::{QUICK, World};

/// A program in Python, which writes its input to a file beside it.
async fn world(program: &str, more: &str) -> World {
    let folder = tempfile::tempdir().unwrap().keep();
    let (script, ledger) = (folder.join("handler.py"), folder.join("ledger"));
    let text = format!(
        "import json, os, sys\nledger = open({:?}, 'a', buffering=1)\n{program}",
        ledger.display().to_string()
    );
    std::fs::write(&script, text).unwrap();
    let command = format!(
        "handler = {{ command = [\"python3\", {:?}] }}",
        script.display().to_string()
    );
    // However long the machine takes to start a program, the event is tried again.
    let patient = QUICK.replace("tries = 3", "tries = \"forever\"");
    let world = World::start(&format!("{patient}{command}\n{more}")).await;
    std::fs::write(world.folder().join("program"), folder.display().to_string()).unwrap();
    world
}

fn ledger(world: &World) -> Vec<Value> {
    let folder = std::fs::read_to_string(world.folder().join("program")).unwrap();
    let text = std::fs::read_to_string(format!("{folder}/ledger")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn end(mut world: World) {
    world.stop().await;
    let folder = std::fs::read_to_string(world.folder().join("program")).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_answers_line_by_line() {
    let program = "
for line in sys.stdin:
    event = json.loads(line)
    ledger.write(line)
    value = event['value']
    answer = {'id': event['id']}
    if value == 'bad': answer['error'] = 'no such order'
    elif value == 'busy' and event['attempt'] < 3: answer |= {'error': 'busy', 'transient': True}
    else: answer['ok'] = True
    print(json.dumps(answer), flush=True)
";
    let world = world(program, "").await;
    world
        .send(&["\"good\"", "\"bad\"", "\"busy\"", "{\n  \"lines\": 2\n}"])
        .await;
    let facts = world.done().await;
    assert_eq!(
        (&facts["handled"], &facts["dead_letters"]),
        (&json!(3), &json!(1))
    );
    let letters = world.json("GET /api/dead-letters/billing", "").await;
    assert_eq!(letters["letters"][0]["reason"], "no such order");
    let requests = ledger(&world);
    let busy: Vec<_> = requests
        .iter()
        .filter(|event| event["value"] == "busy")
        .map(|event| &event["attempt"])
        .collect();
    assert_eq!(busy, [&json!(1), &json!(2), &json!(3)]);
    let lines = requests.iter().find(|event| event["offset"] == 3).unwrap();
    assert_eq!(
        (&lines["id"], &lines["value"]),
        (&json!("orders/0@3"), &json!({"lines": 2}))
    );
    end(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_dies_or_hangs_is_started_again() {
    let program = "
for line in sys.stdin:
    event = json.loads(line)
    ledger.write(line)
    seen = sum(1 for old in open(ledger.name) if json.loads(old)['id'] == event['id'])
    if event['value'] == 'die' and seen == 1: os._exit(3)
    if event['value'] == 'hang' and seen == 1:
        import time; time.sleep(1000)
    print(json.dumps({'id': event['id'], 'ok': True}), flush=True)
";
    let more = "order = \"partition\"\ntimeout = \"6s\"";
    let world = world(program, more).await;
    world.send(&["\"die\"", "\"hang\"", "\"good\""]).await;
    let facts = world.done().await;
    assert_eq!(
        (&facts["handled"], &facts["dead_letters"]),
        (&json!(3), &json!(0))
    );
    let requests = ledger(&world);
    let mut values: Vec<_> = requests
        .iter()
        .map(|event| event["value"].as_str().unwrap())
        .collect();
    for again in ["die", "hang"] {
        let count = values.iter().filter(|value| **value == again).count();
        assert!(count >= 2, "{values:?}");
    }
    values.dedup();
    assert_eq!(values, ["die", "hang", "good"]);
    end(world).await;
}
