use std::sync::Arc;

use highwater_access::{Grant, GrantKind, Key, KeyScope, Right, Rights};

use super::binding::{
    ANY, CLUSTER, CREATE, GROUP, LITERAL, MATCH, PREFIXED, TOPIC, TRANSACTIONAL_ID, WRITE,
};
use super::*;

fn filter() -> Filter {
    Filter {
        resource: ANY,
        name: None,
        pattern: ANY,
        principal: None,
        host: None,
        operation: ANY,
        permission: ANY,
    }
}

fn reader() -> Key {
    let rights: Rights = [Right::Listen].into_iter().collect();
    let scope = KeyScope::of_hubs("app", ["t", "log-*"]);
    Key::new("app", "secret", rights, scope)
}

fn holders_of(key: Key) -> Holders {
    Holders {
        keys: vec![Arc::new(key)],
        everybody: Vec::new(),
    }
}

fn names(filter: &Filter, key: Key) -> Vec<(i8, String, i8)> {
    let found = bindings(filter, &holders_of(key)).into_keys();
    found
        .map(|(resource, pattern)| (resource, pattern.name, pattern.kind))
        .collect()
}

// proves G1
#[test]
fn a_key_is_shown_as_bindings_of_its_names() {
    let all = names(&filter(), reader());
    let expected = [
        (TOPIC, "t", LITERAL),
        (TOPIC, "log-", PREFIXED),
        (GROUP, "app", LITERAL),
        (GROUP, "app-", PREFIXED),
        (GROUP, "app.", PREFIXED),
    ];
    assert_eq!(
        all,
        expected.map(|(kind, name, pattern)| (kind, name.to_owned(), pattern))
    );
}

// proves G1
#[test]
fn a_super_user_is_shown_to_who_asks_for_it() {
    let root = Key::new("root", "secret", Rights::ALL, KeyScope::UNLIMITED);
    assert!(names(&filter(), root.clone()).is_empty());
    let of_root = Filter {
        principal: Some("User:root".into()),
        ..filter()
    };
    let kinds: Vec<i8> = names(&of_root, root).iter().map(|one| one.0).collect();
    assert_eq!(kinds, [TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID]);
    let send: Rights = [Right::Send].into_iter().collect();
    let sender = Key::new("sender", "secret", send, KeyScope::UNLIMITED);
    assert_eq!(names(&filter(), sender).len(), 2, "a part of the rights");
}

// proves G1
#[test]
fn a_grant_is_shown_beside_the_rights_and_once() {
    let grant = |kind, name: &str| Grant {
        right: Right::Manage,
        kind,
        name: name.to_owned(),
    };
    let grants = vec![
        grant(GrantKind::NewHub, "new"),
        grant(GrantKind::Hub, "u"),
        grant(GrantKind::NewHub, "u"),
    ];
    let found = bindings(&filter(), &holders_of(reader().with_grants(grants)));
    let operations = |name: &str| -> Vec<i8> {
        let of_name = &found[&(TOPIC, Pattern::literal(name))];
        of_name.iter().map(|one| one.operation).collect()
    };
    assert_eq!(operations("new"), [CREATE]);
    assert_eq!(operations("u"), [5, 6, 7, 10, 11]);
    assert_eq!(operations("t"), [3]);
}

#[test]
fn a_filter_takes_names_kinds_operations_and_principals() {
    let count = |filter: Filter| names(&filter, reader()).len();
    let named = |name: &str, pattern| Filter {
        resource: TOPIC,
        name: Some(name.to_owned()),
        pattern,
        ..filter()
    };
    assert_eq!(count(named("log-1", MATCH)), 1);
    assert_eq!(count(named("log-1", LITERAL)), 0);
    assert_eq!(count(named("log-", PREFIXED)), 1);
    assert_eq!(count(named("t", LITERAL)), 1);
    let with = |change: fn(&mut Filter)| {
        let mut filter = filter();
        change(&mut filter);
        count(filter)
    };
    assert_eq!(with(|filter| filter.operation = WRITE), 0);
    assert_eq!(with(|filter| filter.permission = 2), 0);
    assert_eq!(with(|filter| filter.principal = Some("User:app".into())), 5);
    assert_eq!(
        with(|filter| filter.principal = Some("User:other".into())),
        0
    );
    assert_eq!(with(|filter| filter.host = Some("127.0.0.1".into())), 0);
}
