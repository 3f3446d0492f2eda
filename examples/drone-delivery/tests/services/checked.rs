//! The checker on journals of real services, unchanged and tampered with.

use std::path::Path;
use std::sync::Arc;

use drone_delivery::chaos::Faults;
use drone_delivery::check::{CheckReport, gather, verify};
use drone_delivery::http::{Service, ServiceServer};
use drone_delivery::services::drone::{Event, Fleet};
use drone_delivery::services::history::{Histories, ReadEvents};
use drone_delivery::services::package::PackageService;
use serde_json::{Value, json};

use crate::backends::{body, delivery_service, drone_service, flight, parcel};
use crate::support::*;

/// One delivery that is scheduled and one that failed at its last step and was undone.
async fn two_deliveries(data: &Path) {
    let doors = (
        server(PackageService {
            store: store(&data.join("package")).await,
        }),
        server(drone_service(&data.join("drone"), 10).await),
        server(delivery_service(&data.join("delivery/deliveries")).await),
    );
    let mut package = serve(doors.0.clone()).await;
    let mut drone = serve(doors.1.clone()).await;
    let mut delivery = serve(doors.2.clone()).await;
    for id in ["d1", "d2"] {
        let mut flight = flight();
        flight["packageDetails"] = json!([{"id": format!("p-{id}")}]);
        package
            .ask(&format!("PUT /api/packages/p-{id}"), parcel(id))
            .await;
        drone
            .ask(&format!("PUT /api/dronedeliveries/{id}"), flight)
            .await;
    }
    delivery
        .ask("PUT /api/deliveries/d1", body("drone-000000"))
        .await;
    drone
        .ask("DELETE /api/dronedeliveries/d2", Value::Null)
        .await;
    package
        .ask("DELETE /api/packages?delivery=d2", Value::Null)
        .await;
    let histories = store::<Histories>(&data.join("history")).await;
    let events = vec![json!({"deliveryId": "d1", "stage": "Created"})];
    let read = ReadEvents {
        partition: 0,
        next: 1,
        events,
    };
    histories.change(|_| (Some(read), ())).await;
    histories.stop();
    let told = [
        json!({"id": "d1", "wish": "deliver"}),
        json!({"id": "d2", "wish": "deliver"}),
    ];
    lines(&data.join("ledger.jsonl"), &told);
    let ends = [
        json!({"id": "d1", "state": "completed"}),
        json!({"id": "d2", "state": "failed", "reason": "no answer"}),
    ];
    lines(&data.join("outcomes.jsonl"), &ends);
    doors.0.service().store.stop();
    doors.1.service().store.stop();
    doors.2.service().store.stop();
}

fn server<S: Service>(service: S) -> Arc<ServiceServer<S>> {
    ServiceServer::new(service, Faults::default(), 1)
}

fn lines(path: &Path, values: &[Value]) {
    use std::io::Write;
    let mut file = highwater_env::disk::create_atomic(path).unwrap();
    for value in values {
        writeln!(file, "{value}").unwrap();
    }
    file.commit().unwrap();
}

async fn report(data: &Path) -> CheckReport {
    verify(&gather(data).await.unwrap())
}

// proves D3
#[tokio::test]
async fn journals_of_real_services_are_read_and_a_drone_too_many_is_found() {
    let folder = folder();
    let data = folder.path();
    two_deliveries(data).await;
    let well = report(data).await;
    assert_eq!(well.violations, Vec::<String>::new());
    assert_eq!(
        (well.scheduled, well.undone.values().sum::<usize>()),
        (1, 1)
    );

    let fleet = store::<Fleet>(&data.join("drone")).await;
    let second = Event::Assigned {
        delivery_id: "d1".into(),
        drone: 7,
        owner_id: "ann".into(),
        packages: vec!["p-d1".into()],
        expedited: false,
        kilometres: 1.0,
        at_ms: 0,
    };
    fleet.change(|_| (Some(second), ())).await;
    fleet.stop();
    let found = report(data).await.violations;
    assert!(
        found
            .iter()
            .any(|one| one == "delivery d1 was given a drone twice"),
        "{found:?}"
    );
}
