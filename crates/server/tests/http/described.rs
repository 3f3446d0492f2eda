//! The description of the API against the API.

use crate::node::node;

/// The path with something in place of its variables.
fn filled(path: &str) -> String {
    let part = |part: &str| match part {
        "{partition}" => "0".to_owned(),
        part if part.starts_with('{') => "h".to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn everything_that_is_described_is_there() {
    let node = node().await;
    let document = node.get("/api/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 10);
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys() {
            let line = format!("{} {}", method.to_uppercase(), filled(path));
            let answer = node.call(&line, &[], "{}").await;
            let nothing = answer.body.contains("there is nothing at");
            assert!(answer.status != 405 && !nothing, "{line}: {}", answer.body);
        }
        let wrong = node.call(&format!("PUT {}", filled(path)), &[], "").await;
        if !operations.as_object().unwrap().contains_key("put") {
            wrong.is(405, "method_not_allowed");
        }
    }
}

#[tokio::test]
async fn the_page_names_every_path_and_runs_no_script() {
    let node = node().await;
    let document = node.get("/api/openapi.json").await.json();
    let page = node.get("/api/docs").await;
    assert_eq!(page.status, 200);
    assert!(
        page.head
            .contains("content-security-policy: default-src 'none'")
    );
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(page.body.contains(path), "{path}");
    }
}
