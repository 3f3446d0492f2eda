//! The administration API of Service Bus. `tests/azure` does the same with the administration clients of Microsoft's
//! SDKs.

use std::net::SocketAddr;

use highwater_access::sas;

use crate::http::node::{Answer, call};
use crate::http::topics::start;

fn entry(description: &str) -> String {
    format!(
        "<?xml version='1.0'?><entry xmlns='http://www.w3.org/2005/Atom'><content type='application/xml'>\
         {description}</content></entry>"
    )
}

async fn put(address: SocketAddr, path: &str, update: bool, description: &str) -> Answer {
    let mut headers = vec!["content-type: application/atom+xml"];
    if update {
        headers.push("if-match: *");
    }
    let line = format!("PUT /{path}?api-version=2021-05");
    call(address, &line, &headers, entry(description)).await
}

async fn get(address: SocketAddr, path: &str) -> Answer {
    let mark = if path.contains('?') { '&' } else { '?' };
    let line = format!("GET /{path}{mark}api-version=2021-05");
    call(address, &line, &[], "").await
}

#[track_caller]
fn has(answer: &Answer, status: u16, parts: &[&str]) {
    assert_eq!(answer.status, status, "{}", answer.body);
    for part in parts {
        assert!(
            answer.body.contains(part),
            "{part} is not in {}",
            answer.body
        );
    }
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn entities_are_created_changed_listed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = start(folder.path(), "").await;
    let queue = "<QueueDescription xmlns='x'><LockDuration>PT30S</LockDuration>\
        <RequiresSession>true</RequiresSession></QueueDescription>";
    let made = put(address, "Orders", false, queue).await;
    let id = "<id>http://localhost/Orders</id>";
    has(
        &made,
        201,
        &[
            "<LockDuration>PT30S</LockDuration>",
            id,
            "<title type=\"text\">Orders</title>",
        ],
    );
    has(
        &put(address, "orders", false, queue).await,
        409,
        &["<Code>409</Code>", "SubCode=40900"],
    );
    let changed = "<QueueDescription><MaxDeliveryCount>3</MaxDeliveryCount></QueueDescription>";
    let parts = [
        "<MaxDeliveryCount>3</MaxDeliveryCount>",
        "<LockDuration>PT30S</LockDuration>",
    ];
    has(&put(address, "orders", true, changed).await, 200, &parts);
    has(&get(address, "ORDERS").await, 200, &parts);
    has(
        &put(address, "other", true, changed).await,
        404,
        &["SubCode=40400", "`other`"],
    );

    let topic = "<TopicDescription/>";
    has(
        &put(address, "prices", false, topic).await,
        201,
        &["<SubscriptionCount>0</SubscriptionCount>"],
    );
    has(
        &put(address, "prices", true, changed).await,
        400,
        &["has a TopicDescription"],
    );
    let subscription = "<SubscriptionDescription><DefaultRuleDescription><Filter i:type='SqlFilter'>\
        <SqlExpression>a = 1</SqlExpression></Filter><Name>first</Name></DefaultRuleDescription></SubscriptionDescription>";
    let path = "prices/subscriptions/audit";
    has(
        &put(address, path, false, subscription).await,
        201,
        &["/prices/Subscriptions/audit</id>"],
    );
    has(&put(address, path, false, subscription).await, 409, &[]);
    has(
        &get(address, "prices").await,
        200,
        &["<SubscriptionCount>1</SubscriptionCount>"],
    );
    let rules = "prices/Subscriptions/audit/Rules";
    has(
        &get(address, rules).await,
        200,
        &["<Name>first</Name>", "a = 1", "EmptyRuleAction"],
    );
    let rule = "<RuleDescription><Filter i:type='CorrelationFilter'><Label>x</Label></Filter></RuleDescription>";
    let second = format!("{rules}/second%20one");
    has(
        &put(address, &second, false, rule).await,
        201,
        &["<Name>second one</Name>", "<Label>x</Label>"],
    );
    has(&put(address, &second, false, rule).await, 409, &[]);
    let rule = "<RuleDescription><Filter i:type='TrueFilter'/></RuleDescription>";
    has(
        &put(address, &second, true, rule).await,
        200,
        &["TrueFilter"],
    );
    has(
        &get(address, "$namespaceinfo").await,
        200,
        &["<MessagingSKU>Standard</MessagingSKU>"],
    );
    for (path, status) in [
        (&second[..], 200),
        (path, 200),
        (path, 404),
        ("prices", 200),
        ("orders", 200),
        ("orders", 404),
    ] {
        let line = format!("DELETE /{path}?api-version=2021-05");
        assert_eq!(call(address, &line, &[], "").await.status, status, "{path}");
    }
    node.stop().await;
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn lists_have_pages() {
    let folder = tempfile::tempdir().unwrap();
    let queues: String = (0..7).map(|n| format!("[queues.q{n}]\n")).collect();
    let (node, address) = start(folder.path(), &queues).await;
    let mut seen = 0;
    for (query, entries, next) in [
        ("$skip=0&$top=3", 3, true),
        ("%24skip=3&%24top=3", 3, true),
        ("$skip=6&$top=3", 1, false),
        ("$skip=7&$top=3", 0, false),
    ] {
        let page = get(address, &format!("$Resources/queues?{query}")).await;
        let found = page.body.matches("<entry").count();
        assert_eq!(
            (page.status, found),
            (200, entries),
            "{query}: {}",
            page.body
        );
        assert_eq!(page.body.contains("rel=\"next\""), next, "{query}");
        seen += found;
    }
    assert_eq!(seen, 7);
    has(&get(address, "$Resources/topics").await, 200, &["</feed>"]);
    has(
        &get(address, "$Resources/queues?$top=x").await,
        400,
        &["no number"],
    );
    node.stop().await;
}

// proves A3, G2
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_description_is_refused_and_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = start(folder.path(), "").await;
    let deep = "<a>".repeat(100);
    for (description, part) in [
        (
            "",
            "the content has no QueueDescription or TopicDescription",
        ),
        ("<QueueDescription>", "not well-formed"),
        (&deep[..], "nested deeper"),
        (
            "<QueueDescription><LockDuration>PT9H</LockDuration></QueueDescription>",
            "1 s to 1 h",
        ),
        (
            "<QueueDescription><AutoDeleteOnIdle>PT4M</AutoDeleteOnIdle></QueueDescription>",
            "at least 5 minutes",
        ),
    ] {
        has(
            &put(address, "q", false, description).await,
            400,
            &["<Code>400</Code>", part],
        );
    }
    has(
        &put(address, "a%2Fb", false, "<QueueDescription/>").await,
        400,
        &["cannot name a queue"],
    );
    has(
        &put(address, "metrics", false, "<QueueDescription/>").await,
        400,
        &["begins paths"],
    );
    let large = "x".repeat(300 << 10);
    has(
        &put(address, "q", false, &large).await,
        400,
        &["larger than"],
    );
    has(&get(address, "$Resources/queues").await, 200, &["</feed>"]);
    has(&get(address, "q").await, 404, &[]);
    // Without a version it is a request like any other.
    call(address, "GET /q", &[], "").await.is(404, "not_found");
    node.stop().await;
}

// proves A3, G1
#[tokio::test(flavor = "multi_thread")]
async fn signatures_of_paths_in_any_case_and_with_a_query_are_accepted_for_their_entity() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "[queues.Orders]\n[queues.other]\n\
        [[keys]]\nname = \"root\"\nsecret = \"s3cret\"\nrights = [\"manage\"]\n\
        [[keys]]\nname = \"small\"\nsecret = \"s3cret\"\nrights = [\"manage\"]\nhubs = [\"ORDERS\"]\n";
    let (node, address) = start(folder.path(), keys).await;
    let get = |key: &'static str, signed: &'static str, path: &'static str| async move {
        let token = sas::sign(
            key,
            b"s3cret",
            &format!("https://node{signed}"),
            4_000_000_000,
        );
        let header = format!("authorization: {token}");
        let line = format!("GET /{path}?api-version=2021-05");
        call(address, &line, &[&header], "").await.status
    };
    assert_eq!(
        get("root", "/orders?api-version=2021-05", "Orders").await,
        200
    );
    assert_eq!(get("root", "", "Orders").await, 200);
    assert_eq!(
        get("root", "/orders?api-version=2021-05", "other").await,
        401
    );
    // The rights are those over the name that the queue has.
    assert_eq!(get("small", "", "ORDERS").await, 403);
    assert_eq!(
        call(address, "GET /Orders?api-version=2021-05", &[], "")
            .await
            .status,
        401
    );
    node.stop().await;
}

// proves A3, G1
#[tokio::test(flavor = "multi_thread")]
async fn forwarding_is_set_removed_and_needs_the_right_over_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[queues.mine]\n[queues.other]\n\
        [[keys]]\nname = \"root\"\nsecret = \"s3cret\"\nrights = [\"manage\"]\n\
        [[keys]]\nname = \"small\"\nsecret = \"s3cret\"\nrights = [\"manage\"]\nhubs = [\"mine\"]\n";
    let (node, address) = start(folder.path(), settings).await;
    let change = |key: &'static str, target: &'static str| async move {
        let token = sas::sign(key, b"s3cret", "https://node", 4_000_000_000);
        let header = format!("authorization: {token}");
        let headers = [&header[..], "if-match: *"];
        let body = entry(&format!("<QueueDescription>{target}</QueueDescription>"));
        call(address, "PUT /mine?api-version=2021-05", &headers, body).await
    };
    let url = "<ForwardTo>https://localhost:5300/other</ForwardTo>";
    has(&change("small", url).await, 403, &[]);
    let shown = ["<ForwardTo>other</ForwardTo>"];
    has(&change("root", url).await, 200, &shown);
    // What another has set stays as it is.
    let same = "<ForwardTo>other</ForwardTo><MaxDeliveryCount>3</MaxDeliveryCount>";
    has(&change("small", same).await, 200, &shown);
    let removed = change("small", "").await;
    has(&removed, 200, &[]);
    assert!(!removed.body.contains("ForwardTo"), "{}", removed.body);
    let dead = "<ForwardDeadLetteredMessagesTo>nobody</ForwardDeadLetteredMessagesTo>";
    has(&change("root", dead).await, 400, &["`nobody`"]);
    node.stop().await;
}
