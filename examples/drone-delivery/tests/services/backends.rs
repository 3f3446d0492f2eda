use std::sync::Arc;

use drone_delivery::chaos::Faults;
use drone_delivery::services::account::AccountService;
use drone_delivery::services::delivery::DeliveryService;
use drone_delivery::services::drone::DroneService;
use drone_delivery::services::package::PackageService;
use drone_delivery::services::third_party::ThirdPartyService;
use serde_json::{Value, json};

use crate::support::*;

// proves D2
#[tokio::test]
async fn an_account_is_active_suspended_or_unknown() {
    let folder = folder();
    let store = store(folder.path()).await;
    let mut account = run(AccountService { store }, Faults::default()).await;
    let register = "PUT /api/accounts/ann";
    assert_eq!(
        account.status("GET /api/accounts/ann", Value::Null).await,
        404
    );
    assert_eq!(account.status(register, json!({"active": true})).await, 201);
    assert_eq!(account.status(register, json!({"active": true})).await, 204);
    assert_eq!(
        account.ask("GET /api/Accounts/ann", Value::Null).await,
        (200, json!(true))
    );
    assert_eq!(
        account.status(register, json!({"active": false})).await,
        204
    );
    assert_eq!(
        account.ask("GET /api/accounts/ann", Value::Null).await,
        (200, json!(false))
    );
}

async fn package(folder: &std::path::Path) -> Running {
    let store = store(folder).await;
    run(PackageService { store }, Faults::default()).await
}

pub(crate) fn parcel(delivery: &str) -> Value {
    json!({"size": "Medium", "weight": 2.5, "tag": "ann", "deliveryId": delivery})
}

// proves D2
#[tokio::test]
async fn a_package_is_created_once_and_a_repeat_changes_nothing() {
    let folder = folder();
    let mut package = package(folder.path()).await;
    let (status, body) = package.ask("PUT /api/packages/p1", parcel("d1")).await;
    assert_eq!((status, &body["size"]), (201, &json!("Medium")));
    assert_eq!(
        package.status("PUT /api/packages/p1", parcel("d1")).await,
        204
    );
    assert_eq!(
        package.ask("GET /api/packages/p1", Value::Null).await,
        (200, body)
    );
    let summary = package
        .ask("GET /api/packages/summary/ann", Value::Null)
        .await;
    assert_eq!(summary, (200, json!({"totalWeight": 2.5})));
}

// proves D3
#[tokio::test]
async fn a_package_is_held_by_one_delivery_until_that_lets_go() {
    let folder = folder();
    let mut package = package(folder.path()).await;
    assert_eq!(
        package.status("PUT /api/packages/p1", parcel("d1")).await,
        201
    );
    assert_eq!(
        package.status("PUT /api/packages/p1", parcel("d2")).await,
        409
    );
    // The other delivery fails and is undone: the package is not its own.
    assert_eq!(
        package
            .status("DELETE /api/packages?delivery=d2", Value::Null)
            .await,
        404
    );
    assert_eq!(
        package.status("GET /api/packages/p1", Value::Null).await,
        200
    );
    assert_eq!(
        package
            .status("DELETE /api/packages?delivery=d1", Value::Null)
            .await,
        204
    );
    assert_eq!(
        package
            .status("DELETE /api/packages?delivery=d1", Value::Null)
            .await,
        204
    );
    assert_eq!(
        package.status("GET /api/packages/p1", Value::Null).await,
        404
    );
    assert_eq!(
        package.status("PUT /api/packages/p1", parcel("d3")).await,
        201
    );
}

// proves D3
#[tokio::test]
async fn a_request_that_comes_after_its_own_cancellation_has_no_effect() {
    let folder = folder();
    let mut package = package(&folder.path().join("package")).await;
    assert_eq!(
        package
            .status("DELETE /api/packages?delivery=d1", Value::Null)
            .await,
        404
    );
    assert_eq!(
        package.status("PUT /api/packages/p1", parcel("d1")).await,
        410
    );

    let mut drone = drone(&folder.path().join("drone"), 10).await;
    assert_eq!(
        drone
            .status("DELETE /api/dronedeliveries/d1", Value::Null)
            .await,
        200
    );
    assert_eq!(
        drone.status("PUT /api/dronedeliveries/d1", flight()).await,
        410
    );
    assert_eq!(
        drone
            .status("GET /api/dronedeliveries/d1", Value::Null)
            .await,
        404
    );

    let mut delivery = delivery(&folder.path().join("delivery")).await;
    assert_eq!(
        delivery
            .status("DELETE /api/deliveries/d1", Value::Null)
            .await,
        404
    );
    assert_eq!(
        delivery
            .status("PUT /api/deliveries/d1", body("drone-000000"))
            .await,
        410
    );
}

#[tokio::test]
async fn another_carrier_is_needed_beyond_the_range_of_the_drones() {
    let folder = folder();
    let range_km = 100.0;
    let store = store(folder.path()).await;
    let mut third = run(ThirdPartyService { store, range_km }, Faults::default()).await;
    let ask = "PUT /api/thirdparty/d1";
    assert_eq!(
        third.ask(ask, json!("5 Harbour Road")).await,
        (200, json!(false))
    );
    let paris = json!({"latitude": 48.85, "longitude": 2.35});
    assert_eq!(
        third.ask("PUT /api/thirdparty/d2", paris.clone()).await,
        (200, json!(true))
    );
    // The answer for an id never changes.
    assert_eq!(third.ask(ask, paris).await, (200, json!(false)));
}

pub(crate) async fn drone_service(folder: &std::path::Path, drones: u32) -> DroneService {
    DroneService {
        store: store(folder).await,
        drones,
        clock: clock(),
    }
}

async fn drone(folder: &std::path::Path, drones: u32) -> Running {
    run(drone_service(folder, drones).await, Faults::default()).await
}

pub(crate) fn flight() -> Value {
    json!({
        "deliveryId": "d", "ownerId": "ann", "pickup": "47.6,-122.3", "dropoff": "47.7,-122.3",
        "packageDetails": [{"id": "p1", "size": "Small"}], "expedited": true,
    })
}

// proves D3
#[tokio::test]
async fn a_delivery_has_one_drone_however_often_it_is_asked_for() {
    let folder = folder();
    let mut first = drone(folder.path(), 2).await;
    let assigned = first.ask("PUT /api/DroneDeliveries/d1", flight()).await;
    assert_eq!(assigned, (200, json!("drone-000000")));
    assert_eq!(
        first.ask("PUT /api/dronedeliveries/d1", flight()).await,
        assigned
    );
    let (_, seen) = first.ask("GET /api/dronedeliveries/d1", Value::Null).await;
    let expected = json!({"droneId": "drone-000000", "packages": ["p1"], "expedited": true});
    assert_eq!(seen, expected, "expedited and the packages get through");
}

#[tokio::test]
async fn a_drone_that_is_free_again_flies_again_and_a_full_sky_is_a_passing_trouble() {
    let folder = folder();
    let mut drone = drone(folder.path(), 1).await;
    assert_eq!(
        drone.status("PUT /api/dronedeliveries/d1", flight()).await,
        200
    );
    assert_eq!(
        drone.status("PUT /api/dronedeliveries/d2", flight()).await,
        503
    );
    assert_eq!(
        drone
            .status("POST /api/dronedeliveries/d1/return", Value::Null)
            .await,
        200
    );
    assert_eq!(
        drone.status("PUT /api/dronedeliveries/d2", flight()).await,
        200
    );
    assert_eq!(
        drone
            .status("DELETE /api/dronedeliveries/d2", Value::Null)
            .await,
        200
    );
    assert_eq!(
        drone.status("PUT /api/dronedeliveries/d3", flight()).await,
        200
    );
    let path = "GET /api/dronedeliveries/utilization?ownerId=ann&year=2025&month=11";
    let (status, used) = drone.ask(path, Value::Null).await;
    // Three flights of 11.12 km.
    let miles = used["traveledMiles"].as_f64().unwrap();
    assert!(
        status == 200 && (miles - 3.0 * 6.909).abs() < 0.01,
        "{used}"
    );
    let other = path.replace("month=11", "month=12");
    assert_eq!(drone.status(&other, Value::Null).await, 404);
    assert_eq!(
        drone
            .status(&path.replace("month=11", "month=13"), Value::Null)
            .await,
        400
    );
}

pub(crate) async fn delivery_service(folder: &std::path::Path) -> DeliveryService {
    DeliveryService {
        store: Arc::new(store(folder).await),
        clock: clock(),
    }
}

async fn delivery(folder: &std::path::Path) -> Running {
    run(delivery_service(folder).await, Faults::default()).await
}

pub(crate) fn body(drone: &str) -> Value {
    json!({
        "owner": {"userId": "ann", "accountId": "a1"}, "pickup": "here", "dropoff": "there",
        "deadline": "2025-11-15T13:00:00Z", "expedited": true, "confirmationRequired": "Voice",
        "droneId": drone,
    })
}

// proves D2
#[tokio::test]
async fn a_delivery_is_created_with_201_and_a_repeat_answers_204() {
    let folder = folder();
    let mut delivery = delivery(folder.path()).await;
    assert_eq!(
        delivery.status("GET /api/deliveries/d1", Value::Null).await,
        404
    );
    let (status, created) = delivery
        .ask("PUT /api/deliveries/d1", body("drone-1"))
        .await;
    assert_eq!((status, &created["id"]), (201, &json!("d1")));
    assert_eq!(
        delivery
            .status("PUT /api/deliveries/d1", body("drone-1"))
            .await,
        204
    );
    assert_eq!(
        delivery
            .status("PUT /api/deliveries/d1", body("drone-2"))
            .await,
        409
    );
    assert_eq!(
        delivery
            .ask("GET /api/deliveries/public/d1", Value::Null)
            .await,
        (200, created)
    );
    let owner = delivery
        .ask("GET /api/deliveries/d1/owner", Value::Null)
        .await;
    assert_eq!(owner, (200, json!({"userId": "ann", "accountId": "a1"})));
    let path = "GET /api/deliveries/summary?ownerId=ann&year=2025&month=11";
    assert_eq!(
        delivery.ask(path, Value::Null).await,
        (200, json!({"count": 1}))
    );
}

#[tokio::test]
async fn a_delivery_is_followed_to_its_end() {
    let folder = folder();
    let mut delivery = delivery(folder.path()).await;
    delivery
        .ask("PUT /api/deliveries/d1", body("drone-1"))
        .await;
    let later = json!({"dropoff": "elsewhere"});
    assert_eq!(
        delivery.status("PATCH /api/deliveries/d1", later).await,
        200
    );
    let position = json!({"stage": "HeadedToDropoff", "location": "47.6,-122.3"});
    assert_eq!(
        delivery
            .status("PUT /api/deliveries/d1/position", position)
            .await,
        204
    );
    let (_, status) = delivery
        .ask("GET /api/deliveries/d1/status", Value::Null)
        .await;
    assert_eq!(status["stage"], "HeadedToDropoff");
    let notify = json!({"emailAddress": "ann@example.org"});
    assert_eq!(
        delivery
            .status("POST /api/deliveries/d1/notifymerequests", notify)
            .await,
        204
    );
    let confirmed = json!({"geoCoordinates": "47.7,-122.3", "confirmationType": "Voice"});
    let confirm = "POST /api/deliveries/d1/confirmations";
    assert_eq!(delivery.status(confirm, confirmed.clone()).await, 200);
    assert_eq!(delivery.status(confirm, confirmed.clone()).await, 200);
    let (_, over) = delivery.ask("GET /api/deliveries/d1", Value::Null).await;
    assert_eq!(over["dropoff"]["latitude"], 47.7);
    assert_eq!(
        delivery
            .status("DELETE /api/deliveries/d1", Value::Null)
            .await,
        409
    );
    assert_eq!(
        delivery
            .status("POST /api/deliveries/d9/confirmations", confirmed)
            .await,
        404
    );
}

#[tokio::test]
async fn a_cancelled_delivery_is_gone_and_stays_gone() {
    let folder = folder();
    let mut delivery = delivery(folder.path()).await;
    delivery
        .ask("PUT /api/deliveries/d1", body("drone-1"))
        .await;
    assert_eq!(
        delivery
            .status("DELETE /api/deliveries/d1", Value::Null)
            .await,
        200
    );
    assert_eq!(
        delivery
            .status("DELETE /api/deliveries/d1", Value::Null)
            .await,
        200
    );
    assert_eq!(
        delivery.status("GET /api/deliveries/d1", Value::Null).await,
        404
    );
    assert_eq!(
        delivery
            .status("PUT /api/deliveries/d1", body("drone-1"))
            .await,
        410
    );
}
