//! Fault injection: the response, and the work done nevertheless.

use drone_delivery::chaos::Faults;
use drone_delivery::services::account::AccountService;
use serde_json::{Value, json};

use crate::support::*;

async fn account(faults: Faults, folder: &std::path::Path) -> Running {
    let store = store(folder).await;
    run(AccountService { store }, faults).await
}

#[tokio::test]
async fn work_can_be_done_though_the_caller_is_told_nothing() {
    let folder = folder();
    let silent = Faults {
        lost: 1.0,
        ..Faults::default()
    };
    let mut account = account(silent, folder.path()).await;
    let register = account
        .try_ask("PUT /api/accounts/ann", json!({"active": true}))
        .await;
    assert!(register.is_err(), "{register:?}");
    let calm = json!({});
    assert_eq!(account.status("PUT /chaos", calm).await, 204);
    assert_eq!(
        account.ask("GET /api/accounts/ann", Value::Null).await,
        (200, json!(true))
    );
}

#[tokio::test]
async fn half_of_the_errors_come_after_the_work() {
    let folder = folder();
    let failing = Faults {
        errors: 1.0,
        ..Faults::default()
    };
    let mut account = account(failing, folder.path()).await;
    for owner in 0..100 {
        let request = format!("PUT /api/accounts/o{owner}");
        assert_eq!(account.status(&request, json!({"active": true})).await, 500);
    }
    account.status("PUT /chaos", json!({})).await;
    let mut done = 0;
    for owner in 0..100 {
        let request = format!("GET /api/accounts/o{owner}");
        done += usize::from(account.status(&request, Value::Null).await == 200);
    }
    assert!((30..70).contains(&done), "{done}");
}

#[tokio::test]
async fn a_switch_that_makes_no_sense_is_refused() {
    let folder = folder();
    let mut account = account(Faults::default(), folder.path()).await;
    assert_eq!(
        account.status("PUT /chaos", json!({"errors": 2})).await,
        400
    );
    assert_eq!(
        account.status("PUT /chaos", json!({"eror": 0.1})).await,
        400
    );
    assert_eq!(account.status("POST /chaos/down", json!({})).await, 400);
    let (_, faults) = account.ask("GET /chaos", Value::Null).await;
    assert_eq!(faults["errors"], 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_down_takes_no_connection_and_comes_back() {
    let folder = folder();
    let mut account = account(Faults::default(), folder.path()).await;
    assert_eq!(
        account
            .status("POST /chaos/down", json!({"seconds": 20}))
            .await,
        204
    );
    // The listener closes as soon as its task runs; then calls fail until it is bound again.
    let mut failed = 0;
    loop {
        match account.try_ask("GET /healthz", Value::Null).await {
            Err(_) => failed += 1,
            Ok(_) if failed > 0 => break,
            Ok(_) => {}
        }
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(failed < 1000);
    }
}
